#include "frontier.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

#include "arena.h"
#include "popularity.h"

// The loops over edges are compiled for several instruction sets, and the loader chooses among them.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(TENSUS_NO_CLONES)
#define TENSUS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TENSUS_CLONES
#endif
#define TENSUS_INLINE inline __attribute__((always_inline))

namespace tensus {
namespace {

constexpr int64_t kPieces = 64;     // of a batch, about: each has a gradient of its own, added up in their order
constexpr int64_t kDenseShare = 4;  // from this part of all edges on, columns over all entities are cheaper

// ---------------------------------------------------------------------------------------------- columns

// Vectors of 32 bytes: where the machine has wider ones, two of these are as good, and where it has none, a wider type
// would be taken apart number by number.
template <class Real> struct LanesOf {
  typedef Real type __attribute__((vector_size(32)));
};
template <class Real> using Lanes = typename LanesOf<Real>::type;

template <class Real, int B> struct Wide {
  static constexpr int kParts = B * sizeof(Real) / sizeof(Lanes<Real>);
  Lanes<Real> part[kParts];
};

template <class Real, int B> TENSUS_INLINE Wide<Real, B> operator*(Real a, const Wide<Real, B>& x) {
  Wide<Real, B> y;
  for (int k = 0; k < y.kParts; ++k) y.part[k] = a * x.part[k];
  return y;
}

template <class Real, int B> TENSUS_INLINE Wide<Real, B> operator*(const Wide<Real, B>& a, const Wide<Real, B>& x) {
  Wide<Real, B> y;
  for (int k = 0; k < y.kParts; ++k) y.part[k] = a.part[k] * x.part[k];
  return y;
}

template <class Real, int B> TENSUS_INLINE void operator+=(Wide<Real, B>& y, const Wide<Real, B>& x) {
  for (int k = 0; k < y.kParts; ++k) y.part[k] += x.part[k];
}

// One number for each query of a block.
template <class Real, int B> using Columns = std::conditional_t<B == 1, Real, Wide<Real, B>>;

// A sum over the queries of a block, in parts.
template <class Real, int B> using Partial = std::conditional_t<B == 1, Real, Lanes<Real>>;

template <class Sum, class X> TENSUS_INLINE void add_product(Sum& sum, const X& x, const X& y) {
  if constexpr (std::is_same_v<Sum, X>) {
    sum += x * y;
  } else {
    for (int k = 0; k < X::kParts; ++k) sum += x.part[k] * y.part[k];
  }
}

template <class Real, int B> TENSUS_INLINE Real total(const Partial<Real, B>& sum) {
  if constexpr (B == 1) {
    return sum;
  } else {
    constexpr int kCount = sizeof(sum) / sizeof(Real);
    Real half[kCount];
    for (int c = 0; c < kCount; ++c) half[c] = sum[c];
    for (int n = kCount / 2; n > 0; n /= 2)
      for (int c = 0; c < n; ++c) half[c] += half[c + n];
    return half[0];
  }
}

// Memory for columns begins at a cache line, and lies in huge pages where it is large: its rows are met in random
// order. Vectors of numbers, not of columns: as an argument of a template, these would lose their alignment.
template <class T> struct LineAligned {
  using value_type = T;
  LineAligned() = default;
  template <class U> LineAligned(const LineAligned<U>&) {}
  T* allocate(size_t n) {
    return static_cast<T*>(large(n) ? acquire_block(n * sizeof(T))
                                    : ::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T* at, size_t n) {
    if (large(n)) release_block(at);
    else ::operator delete(at, std::align_val_t(64));
  }
  static bool large(size_t n) { return n * sizeof(T) >= kLarge / 4; }
  bool operator==(const LineAligned&) const { return true; }
};
template <class Real> using Numbers = std::vector<Real, LineAligned<Real>>;

template <class Real, int B> TENSUS_INLINE Real& lane(Columns<Real, B>* at, int64_t c) {
  return reinterpret_cast<Real*>(at)[c];
}

// ---------------------------------------------------------------------------------------------- edges

// The edges of a row with one operator are a run: they share the mixed state that they carry.
struct Runs {
  std::vector<int64_t> ptr;    // row n has the runs ptr[n] .. ptr[n + 1]
  std::vector<int32_t> op;     // of a run
  std::vector<int64_t> first;  // run k has the edges first[k] .. first[k + 1]

  void clear() {
    ptr.assign(1, 0);
    first.assign(1, 0);
    op.clear();
  }

  void add_row(const FactGraph& g, int64_t entity) {
    const int64_t begin = g.ptr[entity], end = g.ptr[entity + 1], shift = first.back() - begin;
    for (int64_t e = begin, last; e < end; e = last) {
      for (last = e + 1; last < end && g.op[last] == g.op[e];) ++last;
      op.push_back(g.op[e]);
      first.push_back(last + shift);
    }
    ptr.push_back(int64_t(op.size()));
  }
};

// What all blocks of a call share.
struct Shared {
  Runs runs;  // of all entities

  explicit Shared(const Walk& walk) {
    runs.clear();
    for (int64_t v = 0; v < walk.graph.entities; ++v) runs.add_row(walk.graph, v);
  }
};

// The graph as a block sees it: all of it, or what its frontier touches, entities being numbered as they are reached.
template <class Real> struct View {
  const int64_t* ptr;
  const int32_t* op;
  const int64_t* first;
  const int32_t* target;
  const Real* value;

  int64_t begin(int64_t row) const { return first[ptr[row]]; }
  int64_t end(int64_t row) const { return first[ptr[row + 1]]; }
};

// The edges of the facts that are taken out of the graph, and the columns that do not see them.
struct Own {
  struct Hidden {
    int64_t row, edge, column;
  };
  Hidden hidden[4 * kWidth];  // there and back, and a loop may be met from both its ends
  int64_t count = 0;
  std::vector<uint8_t> touched;  // the rows that have one

  void hide(int64_t row, int64_t edge, int64_t column) {
    if (count == int64_t(std::size(hidden))) return;
    hidden[count++] = {row, edge, column};
    touched[row] = 1;
  }

  void clear() {
    for (; count > 0; --count) touched[hidden[count - 1].row] = 0;
  }

  TENSUS_INLINE bool touches(int64_t first, int64_t last) const {
    bool any = false;
    for (int64_t k = 0; k < count; ++k) any |= hidden[k].edge >= first && hidden[k].edge < last;
    return any;
  }

  // The value of an edge for the columns that see it, 0 for the others.
  template <class Real, int B> TENSUS_INLINE Columns<Real, B> seen(int64_t edge, Real value) const {
    Columns<Real, B> x;
    for (int64_t c = 0; c < B; ++c) lane<Real, B>(&x, c) = value;
    for (int64_t k = 0; k < count; ++k)
      if (hidden[k].edge == edge) lane<Real, B>(&x, hidden[k].column) = 0;
    return x;
  }
};

// One link, in one direction: states (rows, P, B) and (rows, Q, B), weights (operators, P, Q).
template <class Real, int B> struct Job {
  View<Real> view;
  const int64_t* rows;  // that the tail has reached
  int64_t row_count;
  int64_t P, Q;
  const Real* w;
  Partial<Real, B>* dw;         // backward only
  Columns<Real, B>* tail;       // forward: the state; backward: the same
  Columns<Real, B>* tail_grad;  // backward only, null where it is not needed
  Columns<Real, B>* head;       // forward: the state; backward: its gradient
  const Own* own;
};

// Calls body(operator, first edge, last edge, whether some columns do not see all of these) for the runs of a row.
template <class Real, class Body>
TENSUS_INLINE void each_run(const View<Real>& view, const Own& own, int64_t row, const Body& body) {
  const bool touched = own.touched[row];
  for (int64_t k = view.ptr[row]; k < view.ptr[row + 1]; ++k) {
    const int64_t first = view.first[k], last = view.first[k + 1];
    body(view.op[k], first, last, __builtin_expect(touched, 0) && own.touches(first, last));
  }
}

template <class Real, int B, int kQ> TENSUS_INLINE void push(const Job<Real, B>& job, Columns<Real, B>* room) {
  using X = Columns<Real, B>;
  const int64_t P = job.P, Q = kQ ? kQ : job.Q;
  const View<Real> view = job.view;
  X kept[kQ ? kQ : 1];
  X* mixed = kQ ? kept : room;
  for (int64_t n = 0; n < job.row_count; ++n) {
    const X* tail = job.tail + job.rows[n] * P;
    each_run(view, *job.own, job.rows[n],
             [&](int32_t op, int64_t first, int64_t last, bool masked) __attribute__((always_inline)) {
               const Real* w = job.w + op * P * Q;
               for (int64_t q = 0; q < Q; ++q) mixed[q] = w[q] * tail[0];
               for (int64_t p = 1; p < P; ++p)
                 for (int64_t q = 0; q < Q; ++q) mixed[q] += w[p * Q + q] * tail[p];
               for (int64_t e = first; e < last; ++e) {
                 X* head = job.head + view.target[e] * Q;
                 const Real value = view.value[e];
                 if (__builtin_expect(masked, 0)) {
                   const X seen = job.own->template seen<Real, B>(e, value);
                   for (int64_t q = 0; q < Q; ++q) head[q] += seen * mixed[q];
                 } else {
                   for (int64_t q = 0; q < Q; ++q) head[q] += value * mixed[q];
                 }
               }
             });
  }
}

template <class Real, int B, int kQ> TENSUS_INLINE void pull(const Job<Real, B>& job, Columns<Real, B>* room) {
  using X = Columns<Real, B>;
  const int64_t P = job.P, Q = kQ ? kQ : job.Q;
  const View<Real> view = job.view;
  X kept[kQ ? kQ : 1];
  X* sum = kQ ? kept : room;
  for (int64_t n = 0; n < job.row_count; ++n) {
    const X* tail = job.tail + job.rows[n] * P;
    X* grad = job.tail_grad ? job.tail_grad + job.rows[n] * P : nullptr;
    each_run(view, *job.own, job.rows[n],
             [&](int32_t op, int64_t first, int64_t last, bool masked) __attribute__((always_inline)) {
               for (int64_t q = 0; q < Q; ++q) sum[q] = X{};
               for (int64_t e = first; e < last; ++e) {
                 const X* head = job.head + view.target[e] * Q;
                 const Real value = view.value[e];
                 if (__builtin_expect(masked, 0)) {
                   const X seen = job.own->template seen<Real, B>(e, value);
                   for (int64_t q = 0; q < Q; ++q) sum[q] += seen * head[q];
                 } else {
                   for (int64_t q = 0; q < Q; ++q) sum[q] += value * head[q];
                 }
               }
               const Real* w = job.w + op * P * Q;
               Partial<Real, B>* dw = job.dw + op * P * Q;
               for (int64_t p = 0; p < P; ++p)
                 for (int64_t q = 0; q < Q; ++q) {
                   add_product(dw[p * Q + q], tail[p], sum[q]);
                   if (grad) grad[p] += w[p * Q + q] * sum[q];
                 }
             });
  }
}

template <class Real, int B, class Do> TENSUS_INLINE void by_rank(int64_t Q, const Do& run) {
  switch (Q) {
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 3: return run.template operator()<3>();
    case 4: return run.template operator()<4>();
    default: return run.template operator()<0>();
  }
}

#define TENSUS_LOOPS(Real, B)                                                                                \
  TENSUS_CLONES void push_all(const Job<Real, B>& job, Columns<Real, B>* room) {                             \
    by_rank<Real, B>(job.Q, [&]<int kQ>() __attribute__((always_inline)) { push<Real, B, kQ>(job, room); }); \
  }                                                                                                          \
  TENSUS_CLONES void pull_all(const Job<Real, B>& job, Columns<Real, B>* room) {                             \
    by_rank<Real, B>(job.Q, [&]<int kQ>() __attribute__((always_inline)) { pull<Real, B, kQ>(job, room); }); \
  }
TENSUS_LOOPS(float, 1)
TENSUS_LOOPS(double, 1)
TENSUS_LOOPS(float, kWidth)
TENSUS_LOOPS(double, kWidth)

// ---------------------------------------------------------------------------------------------- exponentials

// exp(x - high), and 0 for x = -inf; x <= high. The float version is a polynomial that compilers can vectorise.
TENSUS_INLINE double exp_below(double x, double high) { return std::exp(x - high); }

TENSUS_INLINE float exp_below(float x, float high) {
  float y = x - high;
  y = y < -87.f ? -87.f : y;  // exp(-87) is 1e-38; what is that small counts as zero
  const float n = float(int32_t(y * 1.44269504f - 0.5f));
  const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const int32_t bits = (int32_t(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return y == -87.f ? 0.f : p * scale;
}

// x[n, c] <- exp(x[n, c] - high[c]); total[c] += their sum. Sums of a fixed number of rows are added up in double.
template <class Real, int B>
TENSUS_INLINE void exponentiate(Real* x, int64_t rows, const Real* high, double* total) {
  constexpr int64_t kChunk = 64;
  for (int64_t begin = 0; begin < rows; begin += kChunk) {
    Real sum[B] = {};
    for (int64_t n = begin; n < std::min(begin + kChunk, rows); ++n)
      for (int c = 0; c < B; ++c) {
        const Real y = exp_below(x[n * B + c], high[c]);
        x[n * B + c] = y;
        sum[c] += y;
      }
    for (int c = 0; c < B; ++c) total[c] += double(sum[c]);
  }
}

#define TENSUS_EXPONENTIATE(Real, B)                                                                           \
  TENSUS_CLONES void exponentiate_all(std::integral_constant<int, B>, Real* x, int64_t rows, const Real* high, \
                                      double* total) {                                                         \
    exponentiate<Real, B>(x, rows, high, total);                                                               \
  }
TENSUS_EXPONENTIATE(float, 1)
TENSUS_EXPONENTIATE(double, 1)
TENSUS_EXPONENTIATE(float, kWidth)
TENSUS_EXPONENTIATE(double, kWidth)

// ---------------------------------------------------------------------------------------------- blocks

// How many weights link e has for one relation.
int64_t weight_count(const Walk& walk, int64_t e) {
  const WalkLink& link = walk.dag.links[e];
  return walk.graph.operators * walk.dag.ranks[link.tail] * walk.dag.ranks[link.head];
}

// Where those of link e begin among the weights of one relation; with e one past the last link, how many there are.
int64_t weight_offset(const Walk& walk, int64_t e) {
  int64_t sum = 0;
  for (int64_t k = 0; k < e; ++k) sum += weight_count(walk, k);
  return sum;
}

// Some queries of one relation, as columns over the entities that they reach. Made once for each thread.
template <class Real, int B> class Block {
 public:
  using X = Columns<Real, B>;

  Block(const Walk& walk, const Shared& shared)
      : walk_(walk), shared_(shared), standing_(walk), slot_(walk.graph.entities, -1), states_(walk.dag.states),
        grads_(walk.dag.states) {
    int64_t widest = 1;
    for (int64_t k = 0; k < walk.dag.states; ++k) widest = std::max(widest, walk.dag.ranks[k]);
    room_.resize(widest * B);
    own_.touched.assign(walk.graph.entities, 0);
  }

  // Walks from the queries first .. last, all of one relation.
  void forward(int64_t first, int64_t last) {
    begin(first, last);
    const WalkDag& dag = walk_.dag;
    for (int64_t k = 0; k < dag.states; ++k) states_[k].assign(size(k) * dag.ranks[k] * B, 0);
    for (int64_t c = 0; c < columns_; ++c) states_[0][slot_[walk_.queries.start[first_ + c]] * B + c] = 1;
    for (int64_t e = 0; e < dag.link_count; ++e) push_all(job(e, nullptr), columns_of(room_));
    add_popularity();
  }

  // After forward, with the gradient of the scores in `sink`; adds to dw, which has the links of one relation.
  void backward(Real* dw) {
    const WalkDag& dag = walk_.dag;
    for (int64_t k = 1; k < dag.states - 1; ++k) grads_[k].assign(states_[k].size(), 0);
    grads_[dag.states - 1].swap(states_[dag.states - 1]);
    const int64_t count = weight_offset(walk_, dag.link_count);
    dw_.assign(count * sizeof(Partial<Real, B>) / sizeof(Real), 0);
    auto* sums = reinterpret_cast<Partial<Real, B>*>(dw_.data());
    for (int64_t e = dag.link_count - 1; e >= 0; --e)
      pull_all(job(e, sums + weight_offset(walk_, e)), columns_of(room_));
    for (int64_t k = 0; k < count; ++k) dw[k] += total<Real, B>(sums[k]);
    dw[count] += Real(popularity_gradient());
    grads_[dag.states - 1].swap(states_[dag.states - 1]);
  }

  // Forgets what was reached. A block must be left before the next one begins.
  void leave() {
    if (dense_) std::fill(slot_.begin(), slot_.end(), -1);
    else
      for (int64_t v : reached_) slot_[v] = -1;
    own_.clear();
  }

  int64_t columns() const { return columns_; }
  int64_t first() const { return first_; }
  int64_t reached() const { return size(walk_.dag.states - 1); }
  int64_t slot(int64_t entity) const { return slot_[entity]; }
  int64_t entity(int64_t slot) const { return dense_ ? slot : reached_[slot]; }
  Real* sink() { return states_.back().data(); }  // (reached, B)
  const Standing<Real>& standing() const { return standing_; }

  Real score(int64_t entity, int64_t c) {
    return slot_[entity] < 0 ? standing_.weight() * Real(popularity(entity, c)) : sink()[slot_[entity] * B + c];
  }

  // log(1 + count) of an entity, the query's own fact not counted.
  double popularity(int64_t entity, int64_t c) const {
    const WalkQueries& q = walk_.queries;
    const bool own = q.own[first_ + c] >= 0 && q.answer[first_ + c] == entity;
    return own ? standing_.log_without_one(entity) : standing_.log_of(entity);
  }

  // Calls visit(number) for the popular entities that are not reached.
  template <class Visit> void each_popular_unreached(const Visit& visit) const {
    for (int64_t k = 0; k < standing_.count(); ++k)
      if (slot_[standing_.entity(k)] < 0) visit(k);
  }

  // What the score of an entity that is not reached says about the weight of popularity.
  void add_to_popularity_gradient(double x) { popularity_gradient_ += x; }

  // Calls visit(entity) for the known answers of a column other than its answer.
  template <class Visit> void each_other(int64_t c, const Visit& visit) const {
    const WalkQueries& q = walk_.queries;
    for (int64_t k = q.known_ptr[first_ + c]; k < q.known_ptr[first_ + c + 1]; ++k)
      if (q.known[k] != q.answer[first_ + c]) visit(q.known[k]);
  }

  // Sets the scores of known answers other than the answer to -inf; returns the entities that compete with the answer
  // and were not reached (the answer not counted).
  Rest rule_out(int64_t c) {
    Rest rest = rest_;
    const int64_t answer = walk_.queries.answer[first_ + c];
    if (slot_[answer] < 0) standing_.take_out(rest, answer);
    each_other(c, [&](int64_t v) {
      if (slot_[v] < 0) standing_.take_out(rest, v);
      else sink()[slot_[v] * B + c] = -std::numeric_limits<Real>::infinity();
    });
    if (standing_.little_of(rest)) recount(rest, c);
    return rest;
  }

  // Edges that all links look at.
  int64_t cost() const {
    int64_t sum = 0;
    for (int64_t e = 0; e < walk_.dag.link_count; ++e)
      for (int64_t n = 0; n < rows_at(walk_.dag.links[e].tail); ++n) sum += view_.end(rows_[n]) - view_.begin(rows_[n]);
    return sum;
  }

  void begin(int64_t first, int64_t last) {
    first_ = first, columns_ = last - first;
    relation_ = walk_.queries.relation[first];
    standing_.turn_to(relation_);
    reach();
    if (dense_) take_everything();
    else take_reached();
    find_own();
  }

 private:
  // The rest again, one by one: where little is left of large sums, it is not what their difference says.
  void recount(Rest& rest, int64_t c) {
    constexpr int32_t kIgnored = -2;
    const auto set = [&](int64_t v, int32_t from, int32_t to) {
      if (slot_[v] == from) slot_[v] = to;
    };
    const int64_t answer = walk_.queries.answer[first_ + c];
    each_other(c, [&](int64_t v) { set(v, -1, kIgnored); });
    set(answer, -1, kIgnored);
    rest.popular = 0, rest.logs = rest.exponentials = rest.slopes = 0;
    each_popular_unreached([&](int64_t k) {
      if (slot_[standing_.entity(k)] != kIgnored) standing_.put_in(rest, k);
    });
    each_other(c, [&](int64_t v) { set(v, kIgnored, -1); });
    set(answer, kIgnored, -1);
  }

  // What is reached in 0, 1, ... steps, but for the last step, which most edges belong to.
  void reach() {
    const FactGraph& g = walk_.graph;
    const int64_t depth = walk_.dag.depth[walk_.dag.states - 1];
    reached_.clear();
    bounds_.clear();
    for (int64_t c = 0; c < columns_; ++c) visit(walk_.queries.start[first_ + c]);
    bounds_.push_back(int64_t(reached_.size()));
    int64_t done = 0, edges = 0;
    for (int64_t t = 1; t < depth; ++t) {
      for (; done < bounds_.back(); ++done)
        for (int64_t e = g.ptr[reached_[done]]; e < g.ptr[reached_[done] + 1]; ++e) visit(g.target[e]);
      bounds_.push_back(int64_t(reached_.size()));
    }
    for (int64_t v : reached_) edges += g.ptr[v + 1] - g.ptr[v];
    dense_ = kDenseShare * edges > g.edges;
  }

  TENSUS_INLINE int32_t visit(int64_t v) {
    if (slot_[v] < 0) {
      slot_[v] = int32_t(reached_.size());
      reached_.push_back(v);
    }
    return slot_[v];
  }

  // Columns over all entities, which keep their numbers.
  void take_everything() {
    const FactGraph& g = walk_.graph;
    rows_.clear();
    for (int64_t t = 0, first = 0; t < int64_t(bounds_.size()); first = bounds_[t++]) {
      // Those that take t steps, in the order of entities: so their edges are read one after the other.
      for (int64_t v = 0; v < g.entities; ++v)
        if (slot_[v] >= first && slot_[v] < bounds_[t]) rows_.push_back(v);
    }
    for (int64_t v = 0; v < g.entities; ++v) slot_[v] = int32_t(v);
    bounds_.push_back(g.entities);
    const Runs& runs = shared_.runs;
    view_ = {runs.ptr.data(), runs.op.data(), runs.first.data(), g.target, static_cast<const Real*>(g.value)};
  }

  // Entities numbered as they are reached, with a copy of the edges that leave them.
  void take_reached() {
    const FactGraph& g = walk_.graph;
    const int64_t count = bounds_.back();
    runs_.clear(), target_.clear(), value_.clear();
    for (int64_t n = 0; n < count; ++n) {
      const int64_t begin = g.ptr[reached_[n]], end = g.ptr[reached_[n] + 1];
      runs_.add_row(g, reached_[n]);
      for (int64_t e = begin; e < end; ++e) target_.push_back(visit(g.target[e]));
      const Real* value = static_cast<const Real*>(g.value);
      value_.insert(value_.end(), value + begin, value + end);
    }
    bounds_.push_back(int64_t(reached_.size()));
    rows_.resize(count);
    for (int64_t n = 0; n < count; ++n) rows_[n] = n;
    view_ = {runs_.ptr.data(), runs_.op.data(), runs_.first.data(), target_.data(), value_.data()};
  }

  void find_own() {
    const FactGraph& g = walk_.graph;
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t fact = walk_.queries.own[first_ + c];
      if (fact < 0) continue;
      for (int64_t v : {walk_.queries.start[first_ + c], walk_.queries.answer[first_ + c]}) {
        const int64_t row = slot_[v];
        if (row < 0 || (!dense_ && row >= int64_t(rows_.size()))) continue;  // no walk leaves from there
        for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e)
          if (g.fact[e] == fact) own_.hide(row, view_.begin(row) + e - g.ptr[v], c);
      }
    }
  }

  int64_t rows_at(int64_t state) const { return bounds_[walk_.dag.depth[state]]; }
  int64_t size(int64_t state) const { return dense_ ? walk_.graph.entities : rows_at(state); }

  Job<Real, B> job(int64_t e, Partial<Real, B>* dw) {
    const WalkDag& dag = walk_.dag;
    const WalkLink& link = dag.links[e];
    const Real* w = static_cast<const Real*>(link.w) + relation_ * weight_count(walk_, e);
    return {view_,
            rows_.data(),
            rows_at(link.tail),
            dag.ranks[link.tail],
            dag.ranks[link.head],
            w,
            dw,
            columns_of(states_[link.tail]),
            dw && link.tail > 0 ? columns_of(grads_[link.tail]) : nullptr,
            columns_of(dw ? grads_[link.head] : states_[link.head]),
            &own_};
  }

  static X* columns_of(Numbers<Real>& numbers) { return reinterpret_cast<X*>(numbers.data()); }

  // To the scores of what is reached; the rest is counted.
  void add_popularity() {
    rest_ = standing_.all(walk_.graph.entities);
    for (int64_t n = 0; n < reached(); ++n) standing_.take_out(rest_, entity(n));
    popularity_gradient_ = 0;
    const Real weight = standing_.weight();
    each_popular_reached([&](int64_t at, int64_t c, double x) { sink()[at * B + c] += weight * Real(x); });
  }

  double popularity_gradient() const {
    const Real* grad = grads_.back().data();
    double sum = popularity_gradient_;
    each_popular_reached([&](int64_t at, int64_t c, double x) { sum += double(grad[at * B + c]) * x; });
    return sum;
  }

  // Calls visit(slot, column, log(1 + count)) for the popular entities that are reached, and then with what an own fact
  // counts too much.
  template <class Visit> void each_popular_reached(const Visit& visit) const {
    if (standing_.count() == 0) return;
    for (int64_t n = 0; n < reached(); ++n)
      if (const double x = standing_.log_of(entity(n)); x > 0)
        for (int64_t c = 0; c < columns_; ++c) visit(n, c, x);
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t answer = walk_.queries.answer[first_ + c];
      if (slot_[answer] >= 0) visit(slot_[answer], c, popularity(answer, c) - standing_.log_of(answer));
    }
  }

  const Walk& walk_;
  const Shared& shared_;
  Standing<Real> standing_;
  Rest rest_;                       // of all entities, whatever a query rules out
  double popularity_gradient_ = 0;  // of entities that are not reached
  std::vector<int32_t> slot_;       // of every entity, -1 where it is not reached
  std::vector<int64_t> reached_;    // entities, as they are reached
  std::vector<int64_t> bounds_;     // how many are reached in 0, 1, ... steps
  std::vector<int64_t> rows_;       // the slots of those that walks leave from, the first reached first
  Runs runs_;                       // of these, and their edges
  std::vector<int32_t> target_;
  std::vector<Real> value_;
  std::vector<Numbers<Real>> states_, grads_;  // (reached, rank, B)
  Numbers<Real> room_, dw_;
  View<Real> view_;
  Own own_;
  int64_t first_ = 0, columns_ = 0, relation_ = 0;
  bool dense_ = false;
};

// ---------------------------------------------------------------------------------------------- pieces of a batch

struct Piece {
  int64_t first, last;
};

// The queries of one relation, cut into pieces whose length does not depend on the number of threads.
std::vector<Piece> cut(const WalkQueries& q, int64_t width) {
  const int64_t blocks = (q.count + width * kPieces - 1) / (width * kPieces);
  std::vector<Piece> pieces;
  for (int64_t first = 0, last; first < q.count; first = last) {
    for (last = first + 1; last < q.count && q.relation[last] == q.relation[first] && last < first + blocks * width;)
      ++last;
    pieces.push_back({first, last});
  }
  return pieces;
}

// Calls visit(block, piece) on the threads of the team: for every block of every piece, after its walk.
template <class Real, int B, class Visit> void each_block(const Walk& walk, bool walks, const Visit& visit) {
  const std::vector<Piece> pieces = cut(walk.queries, B);
  const Shared shared(walk);
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      Block<Real, B> block(walk, shared);
      for (size_t n; (n = next++) < pieces.size();)
        for (int64_t first = pieces[n].first; first < pieces[n].last; first += B) {
          const int64_t last = std::min(first + B, pieces[n].last);
          if (walks) block.forward(first, last);
          else block.begin(first, last);
          visit(block, n);
          block.leave();
        }
    } catch (...) {  // out of memory: not to be thrown across the threads of another library
      const std::lock_guard<std::mutex> lock(mutex);
      failure = std::current_exception();
    }
  };
  walk.team([](void* context) { (*static_cast<decltype(work)*>(context))(); },
            const_cast<void*>(static_cast<const void*>(&work)));
  if (failure) std::rethrow_exception(failure);
}

// ---------------------------------------------------------------------------------------------- loss

// The loss of each column; the scores become the gradient of sum_n share[n] loss[n].
template <class Real, int B>
void exponential_loss(Block<Real, B>& block, const WalkQueries& q, const Real* share, Real* loss) {
  const int64_t rows = block.reached();
  Real* x = block.sink();
  Real high[B] = {}, answer[B] = {};
  double total[B] = {};
  Rest rest[B];
  const double peak = block.standing().peak();
  for (int64_t c = 0; c < block.columns(); ++c) {
    const int64_t a = q.answer[block.first() + c];
    answer[c] = block.score(a, c);
    rest[c] = block.rule_out(c);
    high[c] = block.slot(a) < 0 ? answer[c] : -std::numeric_limits<Real>::infinity();
    if (rest[c].plain > 0) high[c] = std::max(high[c], Real(0));
    if (rest[c].exponentials > 0) high[c] = std::max(high[c], Real(peak + std::log(rest[c].exponentials)));
  }
  for (int64_t n = 0; n < rows; ++n)
    for (int c = 0; c < B; ++c) high[c] = std::max(high[c], x[n * B + c]);
  exponentiate_all(std::integral_constant<int, B>(), x, rows, high, total);
  Real scale[B] = {};
  for (int64_t c = 0; c < block.columns(); ++c) {
    const int64_t n = block.first() + c, a = q.answer[n];
    const double top = double(high[c]), of_popular = std::exp(peak - top);
    const double of_answer = block.slot(a) < 0 ? std::exp(double(answer[c]) - top) : 0.0;
    total[c] += double(rest[c].plain) * std::exp(-top) + rest[c].exponentials * of_popular + of_answer;
    loss[n] = Real(std::log(total[c]) + top - double(answer[c]));
    const double factor = double(share[n]) / total[c];
    scale[c] = Real(factor);
    block.add_to_popularity_gradient(factor * rest[c].slopes * of_popular);
    if (block.slot(a) < 0)
      block.add_to_popularity_gradient((factor * of_answer - double(share[n])) * block.popularity(a, c));
  }
  for (int64_t n = 0; n < rows; ++n)
    for (int c = 0; c < B; ++c) x[n * B + c] *= scale[c];
  for (int64_t c = 0; c < block.columns(); ++c)
    if (const int64_t at = block.slot(q.answer[block.first() + c]); at >= 0) x[at * B + c] -= share[block.first() + c];
}

template <class Real, int B>
void linear_loss(Block<Real, B>& block, const WalkQueries& q, double floor, const Real* share, Real* loss) {
  const int64_t rows = block.reached();
  Real* x = block.sink();
  for (int64_t c = 0; c < B; ++c) {
    if (c >= block.columns()) {
      for (int64_t n = 0; n < rows; ++n) x[n * B + c] = 0;
      continue;
    }
    const int64_t query = block.first() + c, at = block.slot(q.answer[query]);
    const double answer = double(block.score(q.answer[query], c)) + floor;
    const Rest rest = block.rule_out(c);
    double total = floor * double(rest.plain + rest.popular) + double(block.standing().weight()) * rest.logs;
    if (at < 0) total += answer;
    for (int64_t n = 0; n < rows; ++n)
      if (std::isfinite(x[n * B + c])) total += double(x[n * B + c]) + floor;
    loss[query] = Real(std::log(total) - std::log(answer));
    for (int64_t n = 0; n < rows; ++n)
      x[n * B + c] = std::isfinite(x[n * B + c]) ? Real(share[query] / total) : Real(0);
    if (at >= 0) x[at * B + c] -= Real(share[query] / answer);
    const double of_answer = at < 0 ? (share[query] / total - share[query] / answer) : 0.0;
    block.add_to_popularity_gradient(share[query] / total * rest.logs +
                                     of_answer * block.popularity(q.answer[query], c));
  }
}

template <class Real, int B> void loss_of(const Walk& walk, Likelihood f, const Real* share, Real* loss) {
  const WalkDag& dag = walk.dag;
  const bool wanted = dag.link_count > 0 && dag.links[0].dw;
  const std::vector<Piece> pieces = cut(walk.queries, B);
  const int64_t parameters = weight_offset(walk, dag.link_count) + 1;  // and the popularity's
  std::vector<std::vector<Real>> gradients(pieces.size());
  each_block<Real, B>(walk, true, [&](Block<Real, B>& block, size_t piece) {
    if (f.exponential) exponential_loss(block, walk.queries, share, loss);
    else linear_loss(block, walk.queries, f.floor, share, loss);
    if (!wanted) return;
    gradients[piece].resize(parameters);
    block.backward(gradients[piece].data());
  });
  if (!wanted) return;
  for (size_t n = 0; n < pieces.size(); ++n) {
    const int64_t relation = walk.queries.relation[pieces[n].first];
    for (int64_t e = 0; e < dag.link_count; ++e) {
      Real* dw = static_cast<Real*>(dag.links[e].dw) + relation * weight_count(walk, e);
      const Real* part = gradients[n].data() + weight_offset(walk, e);
      for (int64_t k = 0; k < weight_count(walk, e); ++k) dw[k] += part[k];
    }
    if (walk.popularity.dweight) static_cast<Real*>(walk.popularity.dweight)[relation] += gradients[n].back();
  }
}

template <class Real, int B> void scores_of(const Walk& walk, Real* scores) {
  const int64_t entities = walk.graph.entities;
  std::fill(scores, scores + walk.queries.count * entities, Real(0));
  each_block<Real, B>(walk, true, [&](Block<Real, B>& block, size_t) {
    const auto set = [&](int64_t c, int64_t entity) {
      scores[(block.first() + c) * entities + entity] = block.score(entity, c);
    };
    for (int64_t c = 0; c < block.columns(); ++c) {
      for (int64_t n = 0; n < block.reached(); ++n) set(c, block.entity(n));
      block.each_popular_unreached([&](int64_t k) { set(c, block.standing().entity(k)); });
    }
  });
}

template <class Real, int B> void ranks_of(const Walk& walk, int64_t* higher, int64_t* equal) {
  each_block<Real, B>(walk, true, [&](Block<Real, B>& block, size_t) {
    for (int64_t c = 0; c < block.columns(); ++c) {
      const int64_t query = block.first() + c, answer = walk.queries.answer[query];
      const Real x = block.score(answer, c);
      const int64_t plain = block.rule_out(c).plain;
      int64_t above = x < 0 ? plain : 0, same = x == 0 ? plain : 0;
      const auto count = [&](Real other, int64_t times) {
        above += times * (other > x);
        same += times * (other == x);
      };
      for (int64_t n = 0; n < block.reached(); ++n) count(block.sink()[n * B + c], 1);
      const Standing<Real>& standing = block.standing();
      block.each_popular_unreached([&](int64_t k) { count(standing.weight() * Real(standing.log(k)), 1); });
      // But for those that do not compete.
      const auto ignore = [&](int64_t v) {
        if (block.slot(v) < 0 && standing.log_of(v) > 0) count(standing.weight() * Real(standing.log_of(v)), -1);
      };
      block.each_other(c, ignore);
      ignore(answer);
      higher[query] = above;
      equal[query] = same - (block.slot(answer) >= 0);
    }
  });
}

template <class Real, int B> void costs_of(const Walk& walk, int64_t* edges) {
  each_block<Real, B>(walk, false, [&](Block<Real, B>& block, size_t) {
    const int64_t cost = block.cost();
    for (int64_t c = 0; c < block.columns(); ++c) edges[block.first() + c] = cost;
  });
}

}  // namespace

template <class Real> void walk_loss(const Walk& walk, Likelihood f, const Real* share, Real* loss) {
  if (walk.width == 1) loss_of<Real, 1>(walk, f, share, loss);
  else loss_of<Real, kWidth>(walk, f, share, loss);
}

template <class Real> void walk_scores(const Walk& walk, Real* scores) {
  if (walk.width == 1) scores_of<Real, 1>(walk, scores);
  else scores_of<Real, kWidth>(walk, scores);
}

template <class Real> void walk_ranks(const Walk& walk, int64_t* higher, int64_t* equal) {
  if (walk.width == 1) ranks_of<Real, 1>(walk, higher, equal);
  else ranks_of<Real, kWidth>(walk, higher, equal);
}

void walk_costs(const Walk& walk, int64_t* edges) {
  if (walk.width == 1) costs_of<float, 1>(walk, edges);
  else costs_of<float, kWidth>(walk, edges);
}

template void walk_loss(const Walk&, Likelihood, const float*, float*);
template void walk_loss(const Walk&, Likelihood, const double*, double*);
template void walk_scores(const Walk&, float*);
template void walk_scores(const Walk&, double*);
template void walk_ranks<float>(const Walk&, int64_t*, int64_t*);
template void walk_ranks<double>(const Walk&, int64_t*, int64_t*);

}  // namespace tensus
