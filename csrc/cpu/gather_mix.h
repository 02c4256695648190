// Gather, then mix: one sparse pass of the width of the near state serves all its links.
#pragma once
#include <type_traits>

#include "weights.h"

namespace tensus {
namespace {

constexpr int64_t kPanelBytes = 16384;    // gathered sums of one row that are mixed together; half of a small L1
constexpr int64_t kMaxRoom = 32;          // and at most this many segments
constexpr int64_t kMaxPartial = 1 << 22;  // numbers in the partial sums of dw

// Whether a rank of 4 is worth knowing at compile time: only where its tiles fit into registers.
template <int U> constexpr bool kFourPays = U == kAll && kRegisters > 16;

// One pass over the rows of a graph: gather the sums of a row's segments into L1, then mix them into every link.
// R is the rank of x.
template <class T, class I, int R, int F, int U> class GatherMixPass {
  using A = Sum<T>;
  using Lanes = Pack<A, kLanes<A>>;
  static constexpr bool kFour = R > 0 && kFourPays<U>;

 public:
  explicit GatherMixPass(const GatherMix& job)
      : job_(job), g_(job.graph), stripes_(job.groups, job.features),
        weights_(job.links, job.link_count, g_.relations, job.rank, true, stripes_),
        diagonal_(job.loops, job.graph, weights_), width_(job.rank * job.features),
        products_(weights_.entries() * stripes_.product_vectors()),
        braided_((products_ + kBraid<U, A> - 1) / kBraid<U, A>) {
    for (int64_t l = 0; l < job.link_count; ++l)
      if (job.links[l].dw) dw_ = g_.relations * weights_.entries() * stripes_.groups();
    room_ = smaller(kMaxRoom, 1 + kPanelBytes / (1 + width_ * int64_t(sizeof(A))));
    chunks_ = g_.chunks(smaller(kMaxChunks, 1 + kMaxPartial / (1 + dw_)));
  }

  void run() const {
    Scratch<A> partial(chunks_ * dw_);
    bool empty[kMaxChunks];
    share(job_.team, chunks_, [&](const auto& next) {
      Thread thread(*this);
      for (int64_t chunk; (chunk = next()) >= 0;) {
        const int64_t begin = g_.first_row(chunk, chunks_), end = g_.first_row(chunk + 1, chunks_);
        empty[chunk] = begin == end;  // of a few rows of a graph, most chunks have none
        if (empty[chunk]) continue;
        thread.clear();
        for (int64_t n = begin; n < end; ++n) thread.row(n);
        if (dw_) thread.reduce(&partial[chunk * dw_]);
      }
    });
    for (int64_t i = 0; dw_ && i < g_.relations; ++i)
      weights_.each_entry([&](int64_t l, int64_t at, int64_t k) {
        const Link& link = job_.links[l];
        for (int64_t g = 0; link.dw && g < stripes_.groups(); ++g) {
          double sum = 0;
          for (int64_t chunk = 0; chunk < chunks_; ++chunk)
            if (!empty[chunk]) sum += partial[chunk * dw_ + place(i, k, g)];
          ((A*)link.dw)[g * link.group + i * link.step + at] = A(sum);
        }
      });
  }

 private:
  // Where entry k of the weights' gradient for relation i stands among those of all groups.
  int64_t place(int64_t i, int64_t k, int64_t g) const { return (i * weights_.entries() + k) * stripes_.groups() + g; }

  // What a thread keeps at hand. The inner products of dw stay spread over vector lanes until the end of a chunk.
  struct Thread {
    const GatherMixPass& pass;
    Scratch<A> panel, matrix;
    // Of segments, by relation; of loops: the corrections of each relation, then what all have in common; of one node
    // with itself, and braided.
    Scratch<Lanes> dw, dw_loop, product, braided;

    explicit Thread(const GatherMixPass& pass)
        : pass(pass), panel((pass.room_ + 1) * pass.width_), matrix(pass.weights_.size()),
          dw(pass.dw_ ? pass.g_.relations * pass.products_ : 0),
          dw_loop(pass.dw_ ? (pass.g_.relations + 1) * pass.braided_ : 0), product(pass.products_),
          braided(pass.braided_) {
      for (int64_t k = 0; k < pass.products_; ++k) product[k] = Lanes{};
    }

    void clear() {
      for (int64_t k = 0; pass.dw_ && k < pass.g_.relations * pass.products_; ++k) dw[k] = Lanes{};
      for (int64_t k = 0; pass.dw_ && k < (pass.g_.relations + 1) * pass.braided_; ++k) dw_loop[k] = Lanes{};
    }

    int64_t features() const { return known<F>(pass.job_.features); }
    int64_t width() const { return known<R * F>(pass.width_); }
    int64_t vectors() const { return product_vectors<U, A>(features()); }

    // Gathers as many segments as there is room for, mixes them, and goes on with the rest of the row.
    void row(int64_t n) {
      const A* block[kMaxRoom + 1];
      int64_t relation[kMaxRoom];
      int64_t s = pass.g_.row_ptr[n];
      const int64_t end = pass.g_.row_ptr[n + 1];
      const int64_t near = row_of<I>(pass.job_.row, n);
      bool first = true;
      do {
        const int64_t count = smaller(end - s, pass.room_);
        for (int64_t b = 0; b < count; ++b, ++s) {
          A* const sums = &panel[b * width()];
          relation[b] = pass.g_.seg_rel[s];
          block[b] = sums;
          gather_from_state(s, sums);
        }
        const bool self = first && near >= 0 && pass.diagonal_;
        if (self) block[count] = as_sums((const T*)pass.job_.x + near * width(), width(), &panel[count * width()]);
        mix_links(n, block, relation, count, self, first);
        if (pass.dw_) multiply_links(n, block, relation, count, self);
        first = false;
      } while (s < end);
    }

    // A state in two places is rare: only where its width is known, and code is short, is that inlined too.
    TENSUS_INLINE void gather_from_state(int64_t s, A* sums) const {
      const Parted<T> parted(pass.job_.x, pass.job_.halo, width());
      if (!pass.job_.halo.rows) gather_segment<R * F>(pass.g_, s, Whole<T>{parted.x}, width(), width(), sums);
      else if constexpr (R * F > 0) gather_segment<R * F>(pass.g_, s, parted, width(), width(), sums);
      else gather_any(pass.g_, s, parted, width(), sums);
    }

    // The next row of a link's state. Rows follow each other, but too many streams run side by side for the hardware.
    // Link by link, as each is worked on: a core can't wait for the rows of all of them at once.
    TENSUS_INLINE void prefetch_next(const Link& link, const void* state, int64_t n) const {
      if (n + 1 == pass.g_.nodes) return;
      const int64_t next = row_of<I>(link.row, n + 1), bytes = link.rank * features() * int64_t(sizeof(T));
      if (next < 0) return;
      const char* const row = (const char*)state + next * bytes;
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
        const int64_t to = row_of<I>(link.row, n);
        if (link.out && to >= 0) {
          prefetch_next(link, link.out, n);
          const bool add = !first || (link.written ? link.written[to] : link.accumulate);
          if (link.written) link.written[to] = 1;
          for_rank<kFour>(link.rank, [&]<int C>() TENSUS_FORCE {
            mix<R, C, F, U>(block, choice, total, pass.job_.rank, link.rank, features(),
                            (T*)link.out + to * link.rank * features(), add);
          });
        }
        for (int64_t b = 0; b < total; ++b) choice[b] += link.step * count_stripes<U, A>(features());
      }
    }

    TENSUS_INLINE void multiply_links(int64_t n, const A* const* block, const int64_t* relation, int64_t count,
                                      bool self) {
      A* lanes[kMaxRoom + 1];
      for (int64_t b = 0; b < count; ++b) lanes[b] = (A*)&dw[relation[b] * pass.products_];
      lanes[count] = (A*)product.get();
      for (int64_t l = 0; l < pass.job_.link_count; ++l) {
        const Link& link = pass.job_.links[l];
        const int64_t far = row_of<I>(link.row, n);
        if (link.dw && far >= 0) {
          const T* const other = (const T*)link.other + far * link.rank * features();
          prefetch_next(link, link.other, n);
          for_rank<kFour>(link.rank, [&]<int C>() TENSUS_FORCE {
            inner<R, C, F, U>(block, lanes, count + self, count, pass.job_.rank, link.rank, features(), other);
          });
        } else if (kFresh<U> && self) {
          for (int64_t k = 0; k < vectors() * link.step; ++k) ((Lanes*)lanes[count])[k] = Lanes{};
        }
        for (int64_t b = 0; b < count + self; ++b) lanes[b] += vectors() * kLanes<A> * link.step;
      }
      if (self) share_product(n);
    }

    // The product of a node with itself belongs to every relation with a loop.
    TENSUS_INLINE void share_product(int64_t n) {
      const int64_t size = pass.braided_;
      const Lanes* const own = braid_all<kBraid<U, A>>(product.get(), pass.products_, braided.get());
      pass.diagonal_.each_correction(n, [&](int64_t i, A weight) TENSUS_FORCE {
        for (int64_t k = 0; k < size; ++k) dw_loop[i * size + k] += weight * own[k];
      });
      for (int64_t k = 0; k < size; ++k) dw_loop[pass.g_.relations * size + k] += own[k];
      for (int64_t k = 0; !kFresh<U> && k < pass.products_; ++k) product[k] = Lanes{};
    }

    void reduce(A* partial) const {
      const Stripes<A, U>& stripes = pass.stripes_;
      for (int64_t i = 0; i < pass.g_.relations; ++i)
        for (int64_t k = 0; k < pass.weights_.entries(); ++k)
          for (int64_t g = 0; g < stripes.groups(); ++g) {
            A& sum = partial[pass.place(i, k, g)];
            sum = stripes.sum(&dw[i * pass.products_], k, g);
            if (pass.diagonal_) sum += pass.diagonal_.loop(i) * loop_sum(pass.g_.relations, k, g) + loop_sum(i, k, g);
          }
    }

    A loop_sum(int64_t i, int64_t k, int64_t g) const {
      return pass.stripes_.sum_braided(&dw_loop[i * pass.braided_], k, g);
    }
  };

  const GatherMix& job_;
  const Rows<A, I> g_;
  const Stripes<A, U> stripes_;
  const Weights<A, U> weights_;
  const Diagonal<A, I, U> diagonal_;
  const int64_t width_;
  const int64_t products_, braided_;  // vectors of inner products for each relation, of its segments and of its loops
  int64_t room_, chunks_;
  int64_t dw_ = 0;  // numbers in the gradient of all weights, or 0 where it is not asked for
};

// Ranks and features of the usual jobs are known at compile time. Others, like borders of groups through a vector or
// 64-bit indices, lose a few percent by running the general code, and halve the time of compilation.
template <class T, class I> void gather_mix_pass(const GatherMix& job) {
  constexpr bool usual = kTuned && std::is_same_v<I, int32_t> && std::is_same_v<T, float>;
  constexpr int kStripe = usual ? 16 / kLanes<Sum<T>> : 0;  // vectors of 16 columns, as four heads have
  for_stripes<Sum<T>, kStripe>(job.groups, job.features, [&]<int U>() {
    if constexpr (usual && (U == kAll || U == kStripe))
      for_rank<kFourPays<U>>(job.rank, [&]<int R>() {
        if constexpr (R)
          for_features<U == kAll>(job.features, [&]<int F>() { GatherMixPass<T, I, R, F, U>(job).run(); });
        else GatherMixPass<T, I, R, 0, U>(job).run();
      });
    else GatherMixPass<T, I, 0, 0, U>(job).run();
  });
}

}  // namespace
}  // namespace tensus
