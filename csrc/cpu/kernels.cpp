// The kernels of kernels.h, written once over a vector width. setup.py compiles this file for each instruction set,
// with TENSUS_ISA naming it. All code has internal linkage and no function of the standard library is used: an
// inline function shared between the objects could be merged by the linker into the version of the wrong machine.
#include "kernels.h"

#include <new>
#include <type_traits>

#define TENSUS_JOIN_(a, b) a##b
#define TENSUS_JOIN(a, b) TENSUS_JOIN_(a, b)
#define TENSUS_TEXT_(a) #a
#define TENSUS_TEXT(a) TENSUS_TEXT_(a)
#define TENSUS_FORCE __attribute__((always_inline))
#define TENSUS_INLINE inline TENSUS_FORCE

namespace tensus {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

constexpr int64_t kPrefetch = 8;         // edges ahead
constexpr int64_t kPanelBytes = 16384;   // gathered sums of one row that are mixed together; half of a small L1
constexpr int64_t kMaxRoom = 32;         // and at most so many segments
constexpr int64_t kChunkCost = 4096;     // work handed out at a time, see Rows::cost
constexpr int64_t kMaxChunks = 256;
constexpr int64_t kMaxPartial = 1 << 22;  // numbers in the partial sums of dw

// ---------------------------------------------------------------------------------------------- numbers

struct BFloat16 {
  uint16_t bits;
};

template <class T> struct SumOf { using type = T; };
template <> struct SumOf<BFloat16> { using type = float; };
template <class T> using Sum = typename SumOf<T>::type;

template <class I> struct UnsignedOf { using type = uint32_t; };
template <> struct UnsignedOf<int64_t> { using type = uint64_t; };

template <class A> constexpr int kLanes = kVectorBytes / int(sizeof(A));

template <class A, int L> struct PackOf {
  typedef A type __attribute__((vector_size(L * sizeof(A))));
  typedef A anywhere __attribute__((vector_size(L * sizeof(A)), aligned(sizeof(A))));
};
template <class A, int L> using Pack = typename PackOf<A, L>::type;
// A pack in memory. Not by memcpy, which may write to anything: every pointer at hand would be read anew after it.
template <class A, int L> using PackAnywhere = typename PackOf<A, L>::anywhere;

template <int L, class T> TENSUS_INLINE Pack<Sum<T>, L> load(const T* from) {
  if constexpr (sizeof(T) == sizeof(BFloat16)) {
    const Pack<uint16_t, L> half = *(const PackAnywhere<uint16_t, L>*)from;
    return (Pack<float, L>)(__builtin_convertvector(half, Pack<uint32_t, L>) << 16);
  } else {
    return *(const PackAnywhere<T, L>*)from;
  }
}

template <int L, class T> TENSUS_INLINE void store(T* to, Pack<Sum<T>, L> pack) {
  if constexpr (sizeof(T) == sizeof(BFloat16)) {  // to nearest even, and NaN stays NaN
    const auto bits = (Pack<uint32_t, L>)pack;
    const auto rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const auto ordered = (Pack<uint32_t, L>)(pack == pack);
    *(PackAnywhere<uint16_t, L>*)to =
        __builtin_convertvector((rounded & ordered) | (0x7fc0 & ~ordered), Pack<uint16_t, L>);
  } else {
    *(PackAnywhere<T, L>*)to = pack;
  }
}

template <class A> TENSUS_INLINE A smaller(A a, A b) { return b < a ? b : a; }

// Calls tile<V, L>(f) over f = 0 .. size: V vectors of L lanes at a time, then fewer, then four lanes, then one.
template <class A, int V, class Tile> TENSUS_INLINE void for_tiles(int64_t size, const Tile& tile) {
  constexpr int L = kLanes<A>;
  int64_t f = 0;
  for (; f + V * L <= size; f += V * L) tile.template operator()<V, L>(f);
  if constexpr (V > 4)
    for (; f + 4 * L <= size; f += 4 * L) tile.template operator()<4, L>(f);
  if constexpr (V == 4)
    for (; f + 2 * L <= size; f += 2 * L) tile.template operator()<2, L>(f);
  if constexpr (V > 1)
    for (; f + L <= size; f += L) tile.template operator()<1, L>(f);
  if constexpr (L > 4)
    for (; f + 4 <= size; f += 4) tile.template operator()<1, 4>(f);
  for (; f < size; ++f) tile.template operator()<1, 1>(f);
}

// Uninitialised memory on a cache line of its own.
template <class A> class Scratch {
 public:
  explicit Scratch(int64_t size) : data_((A*)::operator new(size * sizeof(A) + 64, std::align_val_t(64))) {}
  ~Scratch() { ::operator delete(data_, std::align_val_t(64)); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  A* get() const { return data_; }
  A& operator[](int64_t i) const { return data_[i]; }

 private:
  A* data_;
};

// ---------------------------------------------------------------------------------------------- work sharing

// body(next) runs on every thread of the team; next() hands out 0 .. count - 1, each to the thread that is free, then -1.
template <class Body> void share(Team team, int64_t count, const Body& body) {
  struct Shared {
    const Body& body;
    int64_t count, taken;
  } shared{body, count, 0};
  const Work work = [](void* context) {
    Shared* all = (Shared*)context;
    all->body([all] {
      const int64_t i = __atomic_fetch_add(&all->taken, 1, __ATOMIC_RELAXED);
      return i < all->count ? i : int64_t(-1);
    });
  };
  count > 1 ? team(work, &shared) : work(&shared);
}

// The same where the cost hardly varies: share(team, blocks(count), ... each(next, count, body) ...) calls body(i).
constexpr int64_t kBlock = 64;

constexpr int64_t blocks(int64_t count) { return (count + kBlock - 1) / kBlock; }

template <class Next, class Body> TENSUS_INLINE void each(const Next& next, int64_t count, const Body& body) {
  for (int64_t block; (block = next()) >= 0;)
    for (int64_t i = block * kBlock; i < smaller(count, (block + 1) * kBlock); ++i) body(i);
}

// The typed view of Segments, and its cut into chunks of rows of about equal cost, which depends on nothing else.
template <class A, class I> struct Rows {
  const I* row_ptr;
  const int32_t* seg_rel;
  const I* seg_ptr;
  const I* col;
  const A* seg_val;
  const A* edge_val;
  int64_t nodes, relations, edges;

  explicit Rows(const Segments& g)
      : row_ptr((const I*)g.row_ptr), seg_rel(g.seg_rel), seg_ptr((const I*)g.seg_ptr), col((const I*)g.col),
        seg_val((const A*)g.seg_val), edge_val((const A*)g.edge_val), nodes(g.nodes), relations(g.relations),
        edges(g.edges) {}

  // Of the rows before n; a segment or a row costs about as much as four edges.
  int64_t cost(int64_t n) const { return int64_t(seg_ptr[row_ptr[n]]) + 4 * int64_t(row_ptr[n]) + 4 * n; }

  int64_t chunks(int64_t most = kMaxChunks) const { return smaller(most, 1 + cost(nodes) / kChunkCost); }

  int64_t first_row(int64_t chunk, int64_t chunks) const {
    const double goal = double(cost(nodes)) / double(chunks) * double(chunk);
    if (chunk == chunks) return nodes;
    int64_t low = 0, high = nodes;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      double(cost(middle)) < goal ? low = middle + 1 : high = middle;
    }
    return low;
  }
};

// ---------------------------------------------------------------------------------------------- the inner loops

// Ranks and features that are template arguments are known at compile time, unless they are 0.
template <int N> TENSUS_INLINE int64_t known(int64_t number) { return N ? N : number; }

// out[t] = sum over the edges of a segment of value * x[col, t], t = 0 .. width; the tile of sums stays in registers.
// `readable` entries of col may be read, which is at least `count`: the rows of the next segments are prefetched too.
template <int W, bool kWeighted, class T, class I>
TENSUS_INLINE void gather(const T* x, int64_t width, const I* col, const Sum<T>* value, int64_t count, int64_t readable,
                          Sum<T> scale, Sum<T>* out) {
  using A = Sum<T>;
  for_tiles<A, 8>(known<W>(width), [&]<int V, int L>(int64_t t) TENSUS_FORCE {
    Pack<A, L> sum[V] = {};
    const auto add = [&](int64_t e) TENSUS_FORCE {
      const T* row = x + int64_t(col[e]) * known<W>(width) + t;
      for (int v = 0; v < V; ++v) {
        if constexpr (kWeighted) sum[v] += value[e] * load<L>(row + v * L);
        else sum[v] += load<L>(row + v * L);
      }
    };
    int64_t e = 0;
    for (const int64_t end = smaller(count, readable - kPrefetch); e < end; ++e) {
      const char* ahead = (const char*)(x + int64_t(col[e + kPrefetch]) * known<W>(width) + t);
      for (int b = 0; b < V * L * int(sizeof(T)); b += 64) __builtin_prefetch(ahead + b);
      add(e);
    }
    for (; e < count; ++e) add(e);
    for (int v = 0; v < V; ++v) store<L>(out + t + v * L, sum[v] * scale);
  });
}

template <int W, class T, class I>
TENSUS_INLINE void gather_segment(const Rows<Sum<T>, I>& g, int64_t s, const T* x, int64_t width, Sum<T>* out) {
  const int64_t begin = g.seg_ptr[s], count = g.seg_ptr[s + 1] - begin, readable = g.edges - begin;
  const Sum<T> scale = g.seg_val ? g.seg_val[s] : Sum<T>(1);
  if (g.edge_val) gather<W, true>(x, width, g.col + begin, g.edge_val + begin, count, readable, scale, out);
  else gather<W, false>(x, width, g.col + begin, (const Sum<T>*)nullptr, count, readable, scale, out);
}

// Calls with_rank<R>(): loops over a rank of 1 or 2 are unrolled. R = 0 stands for all others, whose own work is enough
// to hide what the loops cost.
template <class WithRank> TENSUS_INLINE void for_rank(int64_t rank, const WithRank& with_rank) {
  switch (rank) {
    case 1: return with_rank.template operator()<1>();
    case 2: return with_rank.template operator()<2>();
    default: return with_rank.template operator()<0>();
  }
}

// out[c, f] (+)= sum over blocks b and rows r of matrix[b](r, c) * block[b][r, f], for the K columns from `column`.
template <int R, int K, int F, class O, class A>
TENSUS_INLINE void mix_columns(const A* const* block, const A* const* matrix, int64_t count, int64_t rows,
                               int64_t columns, int64_t column, int64_t features, O* out, bool accumulate) {
  for_tiles<A, 8 / K>(known<F>(features), [&]<int V, int L>(int64_t f) TENSUS_FORCE {
    Pack<A, L> sum[K][V] = {};
    O* const to = out + column * known<F>(features) + f;
    if (accumulate)
      for (int k = 0; k < K; ++k)
        for (int v = 0; v < V; ++v) sum[k][v] = load<L>(to + k * known<F>(features) + v * L);
    for (int64_t b = 0; b < count; ++b) {
      const A* x = block[b] + f;
      const A* w = matrix[b] + column;
      for (int64_t r = 0; r < known<R>(rows); ++r) {
        Pack<A, L> row[V];
        for (int v = 0; v < V; ++v) row[v] = load<L>(x + r * known<F>(features) + v * L);
        for (int k = 0; k < K; ++k)
          for (int v = 0; v < V; ++v) sum[k][v] += w[r * columns + k] * row[v];
      }
    }
    for (int k = 0; k < K; ++k)
      for (int v = 0; v < V; ++v) store<L>(to + k * known<F>(features) + v * L, sum[k][v]);
  });
}

// Mixes `count` blocks of (rows, F) by a matrix (rows, columns) each into out (columns, F).
template <int R, int C, int F, class O, class A>
void mix(const A* const* block, const A* const* matrix, int64_t count, int64_t rows, int64_t columns, int64_t features,
         O* out, bool accumulate) {
  const auto tile = [&]<int K>(int64_t column) TENSUS_FORCE {
    mix_columns<R, K, F>(block, matrix, count, rows, known<C>(columns), column, features, out, accumulate);
  };
  if constexpr (C) return tile.template operator()<C>(0);
  int64_t c = 0;
  for (; c + 4 <= columns; c += 4) tile.template operator()<4>(c);
  for (; c + 2 <= columns; c += 2) tile.template operator()<2>(c);
  for (; c < columns; ++c) tile.template operator()<1>(c);
}

// lanes[r * columns + c] += <x[r], y[c]>, each inner product left spread over the lanes of a vector.
template <int R, int K, int F, class A, class T>
TENSUS_INLINE void inner_tile(const A* x, const T* y, int64_t features, Pack<A, kLanes<A>>* lanes, int64_t columns) {
  constexpr int L = kLanes<A>;
  constexpr int H = R * K <= 4 ? 2 : 1;  // few sums would wait for each other: two of each, added at the end
  const int64_t size = known<F>(features);
  Pack<A, L> sum[H][R][K] = {};
  const auto add = [&](int h, int64_t f) TENSUS_FORCE {
    Pack<A, L> left[R], right[K];
    for (int r = 0; r < R; ++r) left[r] = load<L>(x + r * size + f);
    for (int k = 0; k < K; ++k) right[k] = load<L>(y + k * size + f);
    for (int r = 0; r < R; ++r)
      for (int k = 0; k < K; ++k) sum[h][r][k] += left[r] * right[k];
  };
  int64_t f = 0;
  for (; f + H * L <= size; f += H * L)
    for (int h = 0; h < H; ++h) add(h, f + h * L);
  for (; f + L <= size; f += L) add(0, f);
  for (; f < size; ++f)
    for (int r = 0; r < R; ++r)
      for (int k = 0; k < K; ++k) sum[0][r][k][0] += x[r * size + f] * load<1>(y + k * size + f)[0];
  for (int r = 0; r < R; ++r)
    for (int k = 0; k < K; ++k) {
      if constexpr (H == 2) sum[0][r][k] += sum[1][r][k];
      lanes[r * columns + k] += sum[0][r][k];
    }
}

// The inner products of `rows` rows of x with `columns` rows of y.
template <int R, int C, int F, class A, class T>
void inner(const A* x, const T* y, int64_t rows, int64_t columns, int64_t features, Pack<A, kLanes<A>>* lanes) {
  if constexpr (R && C) return inner_tile<R, C, F>(x, y, features, lanes, C);
  const auto rows_of = [&]<int K>(int64_t c) TENSUS_FORCE {
    int64_t r = 0;
    const auto tile = [&]<int N>() TENSUS_FORCE {
      inner_tile<N, K, F>(x + r * known<F>(features), y + c * known<F>(features), features, lanes + r * columns + c,
                          columns);
      r += N;
    };
    while (r + 4 <= rows) tile.template operator()<4>();
    while (r + 2 <= rows) tile.template operator()<2>();
    while (r < rows) tile.template operator()<1>();
  };
  int64_t c = 0;
  for (; c + 2 <= columns; c += 2) rows_of.template operator()<2>(c);
  for (; c < columns; ++c) rows_of.template operator()<1>(c);
}

template <class A> A sum_lanes(Pack<A, kLanes<A>> pack) {
  A sum = 0;
  for (int l = 0; l < kLanes<A>; ++l) sum += pack[l];
  return sum;
}

// A row of a state as sums: the row itself, or a copy where its numbers are narrower.
template <class A> TENSUS_INLINE const A* as_sums(const A* row, int64_t, A*) { return row; }

TENSUS_INLINE const float* as_sums(const BFloat16* row, int64_t size, float* copy) {
  for_tiles<float, 1>(size, [&]<int, int L>(int64_t t) TENSUS_FORCE { store<L>(copy + t, load<L>(row + t)); });
  return copy;
}

// ---------------------------------------------------------------------------------------------- weights

// The weights of all links of a pass: for each relation the links' matrices one after the other, each row by row.
// From the near state a matrix has the near rank as rows and the far one as columns, else the other way round.
template <class A> class Weights {
 public:
  Weights(const Link* links, int64_t count, int64_t relations, int64_t rank, bool from_near)
      : links_(links), count_(count), rank_(rank), from_near_(from_near), size_(total(links, count)),
        packed_(relations * size_) {
    for (int64_t i = 0; i < relations; ++i)
      each_entry([&](int64_t l, int64_t at, int64_t k) {
        packed_[i * size_ + k] = ((const A*)links[l].w)[i * links[l].step + at];
      });
  }

  int64_t size() const { return size_; }  // numbers for each relation
  const A* of(int64_t relation) const { return &packed_[relation * size_]; }

  // visit(l, at, k): entry `at` of a matrix of link l, laid out as the caller has it, is entry k here.
  template <class Visit> void each_entry(const Visit& visit) const {
    for (int64_t l = 0, k = 0; l < count_; ++l) {
      const Link& link = links_[l];
      const int64_t rows = from_near_ ? rank_ : link.rank, columns = from_near_ ? link.rank : rank_;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c, ++k)
          visit(l, from_near_ ? r * link.near + c * link.far : r * link.far + c * link.near, k);
    }
  }

 private:
  static int64_t total(const Link* links, int64_t count) {
    int64_t size = 0;
    for (int64_t l = 0; l < count; ++l) size += links[l].step;
    return size;
  }

  const Link* links_;
  int64_t count_, rank_;
  bool from_near_;
  int64_t size_;
  Scratch<A> packed_;
};

// ---------------------------------------------------------------------------------------------- self-loops

// The diagonals of all relations mix node n with itself: by one matrix, the sum of loop[i] * w[i] over relations, as
// if no pair of the row were special, corrected for those that are. No sparse work, and no work per relation.
template <class A, class I> class Diagonal {
 public:
  Diagonal(const Loops& loops, int64_t relations, const Weights<A>& weights)
      : loop_((const A*)loops.loop), seg_loop_((const A*)loops.seg_loop), row_ptr_((const I*)loops.pairs->row_ptr),
        seg_rel_(loops.pairs->seg_rel), weights_(weights), base_(weights.size()) {
    if (!loop_) return;
    for (int64_t k = 0; k < weights.size(); ++k) base_[k] = 0;
    for (int64_t i = 0; i < relations; ++i)
      for (int64_t k = 0; k < weights.size(); ++k) base_[k] += loop_[i] * weights.of(i)[k];
  }

  explicit operator bool() const { return loop_; }
  A loop(int64_t relation) const { return loop_[relation]; }

  // correct(relation, weight) for each special pair of row n.
  template <class Correct> TENSUS_INLINE void each_correction(int64_t n, const Correct& correct) const {
    if (!seg_loop_) return;
    for (int64_t s = row_ptr_[n]; s < row_ptr_[n + 1]; ++s) correct(seg_rel_[s], seg_loop_[s] - loop_[seg_rel_[s]]);
  }

  // The matrices of all links for node n, in `buffer` where they are not those of every node.
  TENSUS_INLINE const A* matrices(int64_t n, A* buffer) const {
    if (!seg_loop_ || row_ptr_[n] == row_ptr_[n + 1]) return base_.get();
    for_tiles<A, 2>(weights_.size(), [&]<int V, int L>(int64_t k) TENSUS_FORCE {
      Pack<A, L> sum[V];
      for (int v = 0; v < V; ++v) sum[v] = load<L>(&base_[k + v * L]);
      each_correction(n, [&](int64_t i, A weight) TENSUS_FORCE {
        for (int v = 0; v < V; ++v) sum[v] += weight * load<L>(weights_.of(i) + k + v * L);
      });
      for (int v = 0; v < V; ++v) store<L>(buffer + k + v * L, sum[v]);
    });
    return buffer;
  }

 private:
  const A* loop_;
  const A* seg_loop_;
  const I* row_ptr_;
  const int32_t* seg_rel_;
  const Weights<A>& weights_;
  Scratch<A> base_;
};

// ---------------------------------------------------------------------------------------------- gather, then mix

// One pass over the rows of a graph: gather the sums of a row's segments into L1, then mix them into every link.
// R is the rank of x.
template <class T, class I, int R, int F> class GatherMixPass {
  using A = Sum<T>;
  using Lanes = Pack<A, kLanes<A>>;

 public:
  explicit GatherMixPass(const GatherMix& job)
      : job_(job), g_(job.graph), weights_(job.links, job.link_count, g_.relations, job.rank, true),
        diagonal_(job.loops, g_.relations, weights_), width_(job.rank * job.features) {
    for (int64_t l = 0; l < job.link_count; ++l)
      if (job.links[l].dw) dw_ = g_.relations * weights_.size();
    room_ = smaller(kMaxRoom, 1 + kPanelBytes / (1 + width_ * int64_t(sizeof(A))));
    chunks_ = g_.chunks(smaller(kMaxChunks, 1 + kMaxPartial / (1 + dw_)));
  }

  void run() const {
    Scratch<A> partial(chunks_ * dw_);
    share(job_.team, chunks_, [&](const auto& next) {
      Thread thread(*this);
      for (int64_t chunk; (chunk = next()) >= 0;) {
        thread.clear();
        const int64_t end = g_.first_row(chunk + 1, chunks_);
        for (int64_t n = g_.first_row(chunk, chunks_); n < end; ++n) thread.row(n);
        if (dw_) thread.reduce(&partial[chunk * dw_]);
      }
    });
    for (int64_t i = 0; dw_ && i < g_.relations; ++i)
      weights_.each_entry([&](int64_t l, int64_t at, int64_t k) {
        const Link& link = job_.links[l];
        if (!link.dw) return;
        double sum = 0;
        for (int64_t chunk = 0; chunk < chunks_; ++chunk) sum += partial[chunk * dw_ + i * weights_.size() + k];
        ((A*)link.dw)[i * link.step + at] = A(sum);
      });
  }

 private:
  // What a thread keeps at hand. The inner products of dw stay spread over vector lanes until the end of a chunk.
  struct Thread {
    const GatherMixPass& pass;
    Scratch<A> panel, matrix;
    Scratch<Lanes> dw, dw_base, product;

    explicit Thread(const GatherMixPass& pass)
        : pass(pass), panel((pass.room_ + 1) * pass.width_), matrix(pass.weights_.size()), dw(pass.dw_),
          dw_base(pass.weights_.size()), product(pass.weights_.size()) {
      for (int64_t k = 0; k < pass.weights_.size(); ++k) product[k] = Lanes{};
    }

    void clear() {
      for (int64_t k = 0; k < pass.dw_; ++k) dw[k] = Lanes{};
      for (int64_t k = 0; k < pass.weights_.size(); ++k) dw_base[k] = Lanes{};
    }

    int64_t features() const { return known<F>(pass.job_.features); }
    int64_t width() const { return known<R * F>(pass.width_); }

    // Gathers as many segments as there is room for, mixes them, and goes on with the rest of the row.
    void row(int64_t n) {
      const A* block[kMaxRoom + 1];
      int64_t relation[kMaxRoom];
      int64_t s = pass.g_.row_ptr[n];
      const int64_t end = pass.g_.row_ptr[n + 1];
      bool first = true;
      do {
        const int64_t count = smaller(end - s, pass.room_);
        for (int64_t b = 0; b < count; ++b, ++s) {
          A* const sums = &panel[b * width()];
          relation[b] = pass.g_.seg_rel[s];
          block[b] = sums;
          gather_segment<R * F>(pass.g_, s, (const T*)pass.job_.x, width(), sums);
        }
        const bool self = first && pass.diagonal_;
        if (self) block[count] = as_sums((const T*)pass.job_.x + n * width(), width(), &panel[count * width()]);
        mix_links(n, block, relation, count, self, first);
        if (pass.dw_) multiply_links(n, block, relation, count, self);
        first = false;
      } while (s < end);
    }

    // The next row of a link's state. Rows follow each other, but too many streams run side by side for the hardware.
    // Link by link, as each is worked on: a core can't wait for the rows of all of them at once.
    TENSUS_INLINE void prefetch_next(const void* state, int64_t n, int64_t rank) const {
      if (n + 1 == pass.g_.nodes) return;
      const int64_t bytes = rank * features() * int64_t(sizeof(T));
      const char* const row = (const char*)state + (n + 1) * bytes;
      for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
    }

    // The first `count` blocks are sums of segments; the node itself follows where `self`.
    TENSUS_INLINE void mix_links(int64_t n, const A* const* block, const int64_t* relation, int64_t count, bool self,
                                 bool first) {
      const A* choice[kMaxRoom + 1];
      for (int64_t b = 0; b < count; ++b) choice[b] = pass.weights_.of(relation[b]);
      if (self) choice[count] = pass.diagonal_.matrices(n, matrix.get());
      const int64_t total = count + self;
      for (int64_t l = 0; l < pass.job_.link_count; ++l) {
        const Link& link = pass.job_.links[l];
        if (link.out) {
          prefetch_next(link.out, n, link.rank);
          for_rank(link.rank, [&]<int C>() TENSUS_FORCE {
            mix<R, C, F>(block, choice, total, pass.job_.rank, link.rank, features(),
                         (T*)link.out + n * link.rank * features(), link.accumulate || !first);
          });
        }
        for (int64_t b = 0; b < total; ++b) choice[b] += link.step;
      }
    }

    TENSUS_INLINE void multiply_links(int64_t n, const A* const* block, const int64_t* relation, int64_t count,
                                      bool self) {
      const int64_t weights = pass.weights_.size();
      for (int64_t l = 0, offset = 0; l < pass.job_.link_count; offset += pass.job_.links[l++].step) {
        const Link& link = pass.job_.links[l];
        if (!link.dw) continue;
        const T* const other = (const T*)link.other + n * link.rank * features();
        prefetch_next(link.other, n, link.rank);
        for_rank(link.rank, [&]<int C>() TENSUS_FORCE {
          const auto multiply = [&](const A* x, Lanes* lanes) TENSUS_FORCE {
            inner<R, C, F>(x, other, pass.job_.rank, link.rank, features(), lanes + offset);
          };
          for (int64_t b = 0; b < count; ++b) multiply(block[b], &dw[relation[b] * weights]);
          if (self) multiply(block[count], product.get());
        });
      }
      if (self) share_product(n);
    }

    // The product of a node with itself belongs to every relation with a loop; it is left at zero for the next node.
    TENSUS_INLINE void share_product(int64_t n) {
      const int64_t weights = pass.weights_.size();
      pass.diagonal_.each_correction(n, [&](int64_t i, A weight) TENSUS_FORCE {
        for (int64_t k = 0; k < weights; ++k) dw[i * weights + k] += weight * product[k];
      });
      for (int64_t k = 0; k < weights; ++k) {
        dw_base[k] += product[k];
        product[k] = Lanes{};
      }
    }

    void reduce(A* partial) const {
      const int64_t weights = pass.weights_.size();
      for (int64_t i = 0; i < pass.g_.relations; ++i)
        for (int64_t k = 0; k < weights; ++k) {
          partial[i * weights + k] = sum_lanes<A>(dw[i * weights + k]);
          if (pass.diagonal_) partial[i * weights + k] += pass.diagonal_.loop(i) * sum_lanes<A>(dw_base[k]);
        }
    }
  };

  const GatherMix& job_;
  const Rows<A, I> g_;
  const Weights<A> weights_;
  const Diagonal<A, I> diagonal_;
  const int64_t width_;
  int64_t room_, chunks_;
  int64_t dw_ = 0;  // numbers in the gradient of all weights, or 0 where it is not asked for
};

// Calls with_features<F>() with the usual numbers of features, F = 0 for all others.
template <class WithFeatures> void for_features(int64_t features, const WithFeatures& with_features) {
  switch (features) {
    case 16: return with_features.template operator()<16>();
    case 32: return with_features.template operator()<32>();
    case 64: return with_features.template operator()<64>();
    case 128: return with_features.template operator()<128>();
    default: return with_features.template operator()<0>();
  }
}

// What is known at compile time of the usual jobs; a graph that needs 64-bit indices waits for its memory anyhow.
template <class T, class I> void gather_mix_pass(const GatherMix& job) {
  if constexpr (std::is_same_v<I, int32_t>)
    for_rank(job.rank, [&]<int R>() {
      if constexpr (R && std::is_same_v<T, float>)
        for_features(job.features, [&]<int F>() { GatherMixPass<T, I, R, F>(job).run(); });
      else GatherMixPass<T, I, R, 0>(job).run();
    });
  else GatherMixPass<T, I, 0, 0>(job).run();
}

// ---------------------------------------------------------------------------------------------- mix, then gather

// out (+)= sum over the links of their matrix times their state `other` at node n.
template <class T> class NodeMix {
  using A = Sum<T>;

 public:
  NodeMix(const Link* links, int64_t count, int64_t rank, int64_t features)
      : links_(links), count_(count), rank_(rank), features_(features) {
    for (int64_t l = 0; l < count; ++l) widest_ = widest_ < links[l].rank ? links[l].rank : widest_;
  }

  int64_t buffer_size() const { return widest_ * features_; }

  TENSUS_INLINE void operator()(int64_t n, const A* matrices, A* out, bool accumulate, A* buffer) const {
    for (int64_t l = 0; l < count_; matrices += links_[l++].step) {
      const int64_t size = links_[l].rank * features_;
      const A* block = as_sums((const T*)links_[l].other + n * size, size, buffer);
      mix<0, 0, 0>(&block, &matrices, 1, links_[l].rank, rank_, features_, out, accumulate || l > 0);
    }
  }

 private:
  const Link* links_;
  int64_t count_, rank_, features_;
  int64_t widest_ = 0;
};

// For a narrow y and wide links: the states are mixed first, a relation at a time, and the narrow result is gathered.
template <class T, class I> class MixGatherPass {
  using A = Sum<T>;
  static constexpr bool kRounded = sizeof(T) < sizeof(A);

 public:
  explicit MixGatherPass(const MixGather& job)
      : job_(job), g_(job.graph), weights_(job.links, job.link_count, g_.relations, job.rank, false),
        diagonal_(job.loops, g_.relations, weights_), mix_node_(job.links, job.link_count, job.rank, job.features),
        width_(job.rank * job.features), sums_((A*)(kRounded ? job.sums : job.y)) {}

  void run() const {
    mix_diagonal();
    for (int64_t i = 0; i < g_.relations; ++i) {
      if (job_.rel_ptr[i] == job_.rel_ptr[i + 1]) continue;
      mix_relation(i);
      gather_relation(i);
    }
    if (kRounded) round();
  }

 private:
  // The sums begin with the share of the self-loops, on top of y where that is to be kept.
  void mix_diagonal() const {
    share(job_.team, blocks(g_.nodes), [&](const auto& next) {
      Scratch<A> matrix(weights_.size()), buffer(mix_node_.buffer_size());
      each(next, g_.nodes, [&](int64_t n) {
        A* sums = sums_ + n * width_;
        const T* y = (const T*)job_.y + n * width_;
        if (kRounded || !job_.accumulate)
          for_tiles<A, 1>(width_, [&]<int, int L>(int64_t t) TENSUS_FORCE {
            store<L>(sums + t, job_.accumulate ? load<L>(y + t) : Pack<A, L>{});
          });
        if (diagonal_) mix_node_(n, diagonal_.matrices(n, matrix.get()), sums, true, buffer.get());
      });
    });
  }

  void mix_relation(int64_t i) const {
    share(job_.team, blocks(g_.nodes), [&](const auto& next) {
      Scratch<A> buffer(mix_node_.buffer_size());
      each(next, g_.nodes, [&](int64_t n) {
        mix_node_(n, weights_.of(i), (A*)job_.mixed + n * width_, false, buffer.get());
      });
    });
  }

  void gather_relation(int64_t i) const {
    const int64_t begin = job_.rel_ptr[i], count = job_.rel_ptr[i + 1] - begin;
    share(job_.team, blocks(count), [&](const auto& next) {
      Scratch<A> segment(width_);
      each(next, count, [&](int64_t k) {
        gather_segment<0>(g_, job_.order[begin + k], (const A*)job_.mixed, width_, segment.get());
        A* sums = sums_ + job_.order_row[begin + k] * width_;
        for_tiles<A, 1>(width_, [&]<int, int L>(int64_t t) TENSUS_FORCE {
          store<L>(sums + t, load<L>(sums + t) + load<L>(segment.get() + t));
        });
      });
    });
  }

  void round() const {
    share(job_.team, blocks(g_.nodes), [&](const auto& next) {
      each(next, g_.nodes, [&](int64_t n) {
        for_tiles<A, 1>(width_, [&]<int, int L>(int64_t t) TENSUS_FORCE {
          store<L>((T*)job_.y + n * width_ + t, load<L>(sums_ + n * width_ + t));
        });
      });
    });
  }

  const MixGather& job_;
  const Rows<A, I> g_;
  const Weights<A> weights_;
  const Diagonal<A, I> diagonal_;
  const NodeMix<T> mix_node_;
  const int64_t width_;
  A* const sums_;
};

// ---------------------------------------------------------------------------------------------- edge values

template <class A, class T> TENSUS_INLINE A dot(const A* x, const T* y, int64_t size) {
  constexpr int L = kLanes<A>;
  Pack<A, L> sum[4] = {};
  int64_t t = 0;
  for (; t + 4 * L <= size; t += 4 * L)
    for (int v = 0; v < 4; ++v) sum[v] += load<L>(x + t + v * L) * load<L>(y + t + v * L);
  for (; t + L <= size; t += L) sum[0] += load<L>(x + t) * load<L>(y + t);
  for (; t < size; ++t) sum[0][0] += x[t] * load<1>(y + t)[0];
  return sum_lanes<A>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// For a segment (n, i), mixed[p] = sum_l sum_q w_l[i, p, q] other_l[n, q] is the gradient of its gathered sum.
template <class T, class I> void edge_gradient_pass(const EdgeGradient& job) {
  using A = Sum<T>;
  const Rows<A, I> g(job.graph);
  const int64_t width = job.rank * job.features, chunks = g.chunks();
  const T* x = (const T*)job.x;
  A* grad = (A*)job.grad;
  const Weights<A> weights(job.links, job.link_count, g.relations, job.rank, false);
  const NodeMix<T> mix_node(job.links, job.link_count, job.rank, job.features);

  share(job.team, chunks, [&](const auto& next) {
    Scratch<A> mixed(width), buffer(mix_node.buffer_size());
    for (int64_t chunk; (chunk = next()) >= 0;) {
      const int64_t end = g.first_row(chunk + 1, chunks);
      for (int64_t n = g.first_row(chunk, chunks); n < end; ++n)
        for (int64_t s = g.row_ptr[n]; s < g.row_ptr[n + 1]; ++s) {
          mix_node(n, weights.of(g.seg_rel[s]), mixed.get(), false, buffer.get());
          for (int64_t e = g.seg_ptr[s]; e < g.seg_ptr[s + 1]; ++e) {
            if (e + kPrefetch < g.edges) __builtin_prefetch(x + int64_t(g.col[e + kPrefetch]) * width);
            const A value = dot<A, T>(mixed.get(), x + int64_t(g.col[e]) * width, width);
            grad[e] = job.accumulate ? grad[e] + value : value;
          }
        }
    }
  });
}

// ---------------------------------------------------------------------------------------------- checks

// Whether holds(i) for all i below count, tested on all threads.
template <class Holds> bool all_hold(Team team, int64_t count, const Holds& holds) {
  constexpr int64_t kStep = 1 << 14;
  bool sound = true;
  share(team, (count + kStep - 1) / kStep, [&](const auto& next) {
    for (int64_t step; (step = next()) >= 0;) {
      bool good = true;
      for (int64_t i = step * kStep; i < smaller(count, (step + 1) * kStep); ++i) good &= holds(i);
      if (!good) __atomic_store_n(&sound, false, __ATOMIC_RELAXED);
    }
  });
  return sound;
}

template <class I> bool is_partition(Team team, const I* pointer, int64_t count, int64_t total) {
  return pointer[0] == 0 && pointer[count] == total &&
         all_hold(team, count, [=](int64_t i) { return pointer[i] <= pointer[i + 1]; });
}

template <class I> const char* check_segments(const Segments& g, Team team) {
  typedef typename UnsignedOf<I>::type U;  // one comparison for both ends of a range
  const I* col = (const I*)g.col;
  if (!is_partition(team, (const I*)g.row_ptr, g.nodes, g.segments))
    return "row_ptr must rise from 0 to the number of segments";
  if (!is_partition(team, (const I*)g.seg_ptr, g.segments, g.edges))
    return "seg_ptr must rise from 0 to the number of edges";
  const uint32_t relations = uint32_t(g.relations);
  if (!all_hold(team, g.segments, [&](int64_t s) { return uint32_t(g.seg_rel[s]) < relations; }))
    return "seg_rel must lie in [0, number of relations)";
  const U nodes = U(g.nodes);
  if (!all_hold(team, g.edges, [=](int64_t e) { return U(col[e]) < nodes; }))
    return "col must lie in [0, number of nodes)";
  return nullptr;
}

const char* check(const Segments& g, Team team) {
  return g.wide ? check_segments<int64_t>(g, team) : check_segments<int32_t>(g, team);
}

// ---------------------------------------------------------------------------------------------- entry points

// Calls run<T, I>() with the types of storage and index.
template <class Run> void typed(Real real, bool wide, const Run& run) {
  const auto indexed = [&]<class T>() {
    if (wide) run.template operator()<T, int64_t>();
    else run.template operator()<T, int32_t>();
  };
  switch (real) {
    case Real::f32: return indexed.template operator()<float>();
    case Real::f64: return indexed.template operator()<double>();
    case Real::bf16: return indexed.template operator()<BFloat16>();
  }
}

void gather_mix(Real real, const GatherMix& job) {
  typed(real, job.graph.wide, [&]<class T, class I>() { gather_mix_pass<T, I>(job); });
}

void mix_gather(Real real, const MixGather& job) {
  typed(real, job.graph.wide, [&]<class T, class I>() { MixGatherPass<T, I>(job).run(); });
}

void edge_gradient(Real real, const EdgeGradient& job) {
  typed(real, job.graph.wide, [&]<class T, class I>() { edge_gradient_pass<T, I>(job); });
}

}  // namespace

extern const Kernels TENSUS_JOIN(kernels_, TENSUS_ISA);
const Kernels TENSUS_JOIN(kernels_, TENSUS_ISA) = {TENSUS_TEXT(TENSUS_ISA), gather_mix, mix_gather, edge_gradient,
                                                   check};

}  // namespace tensus
