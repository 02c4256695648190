// Mix, then gather: the states of all links are mixed first, and one narrow sparse pass gathers the result.
#pragma once
#include "weights.h"

namespace tensus {
namespace {

// Some of the relations that have edges, and the matrices that mix a node's states for all of them at once: those of
// the links one after the other, the columns of every relation side by side.
template <class A> class MixedRelations {
 public:
  // The next relations after the first `done` of those in `g`, at most as many as are mixed at once.
  template <class I, int U>
  MixedRelations(const MixGather& job, const Rows<A, I>& g, const Weights<A, U>& weights, int64_t done)
      : place_(g.relations), matrices_(job.at_once * weights.size()) {
    for (int64_t i = 0; i < g.relations; ++i) place_[i] = kAbsent;
    for (int64_t s = 0; s < job.graph.segments; ++s) place_[g.seg_rel[s]] = kPresent;
    int64_t present = 0;
    for (int64_t i = 0; i < g.relations; ++i) {
      if (place_[i] == kAbsent) continue;
      const bool here = present >= done && count_ < job.at_once;
      ++present;
      place_[i] = here ? count_++ : kAbsent;
    }
    more_ = done + count_ < present;
    const int64_t size = job.rank * (weights.size() / weights.entries());  // numbers in a row of a relation's matrix
    for (int64_t i = 0; i < g.relations; ++i)
      for (int64_t k = 0; place_[i] >= 0 && k < weights.size(); ++k)
        matrices_[(k / size * count_ + place_[i]) * size + k % size] = weights.of(i)[k];
  }

  int64_t count() const { return count_; }
  bool more() const { return more_; }  // relations that come after these
  const A* matrices() const { return matrices_.get(); }
  int64_t place(int64_t relation) const { return place_[relation]; }  // among these, or negative

 private:
  static constexpr int64_t kAbsent = -1, kPresent = 0;

  int64_t count_ = 0;
  bool more_;
  Scratch<int64_t> place_;
  Scratch<A> matrices_;
};

// For a narrow y and wide links: the states are mixed first, for several relations at once, so that they are read but
// once or a few times, and the narrow results are gathered.
template <class T, class I, int U> class MixGatherPass {
  using A = Sum<T>;
  static constexpr bool kRounded = sizeof(T) < sizeof(A);

 public:
  explicit MixGatherPass(const MixGather& job)
      : job_(job), g_(job.graph),
        weights_(job.links, job.link_count, g_.relations, job.rank, false, {job.groups, job.features}),
        diagonal_(job.loops, job.graph, weights_), mix_node_(job.links, job.link_count, job.features),
        width_(job.rank * job.features), sums_((A*)(kRounded ? job.sums : job.y)) {}

  void run() const {
    for (int64_t done = 0;;) {
      const MixedRelations<A> relations(job_, g_, weights_, done);
      mix_nodes(relations, done == 0);
      gather_rows(relations);
      done += relations.count();
      if (!relations.more()) break;
    }
    if (kRounded) round();
  }

 private:
  // The sums of row n of the pass: in a workspace of its rows, or in place, in a row of y.
  A* sums_of(int64_t n, int64_t row) const { return sums_ + (kRounded ? n : row) * width_; }

  void mix_nodes(const MixedRelations<A>& relations, bool first) const {
    const int64_t columns = relations.count() * job_.rank;
    share(job_.team, blocks(g_.nodes), [&](const auto& next) {
      Scratch<A> matrix(weights_.size()), buffer(mix_node_.buffer_size());
      each(next, g_.nodes, [&](int64_t n) {
        A* const mixed = (A*)job_.mixed + n * columns * job_.features;
        if (columns) mix_node_(n, relations.matrices(), columns, mixed, false, buffer.get());
        if (first) begin_sums(n, matrix.get(), buffer.get());
      });
    });
  }

  // The sums begin with the share of the self-loops, on top of y where that is to be kept.
  TENSUS_INLINE void begin_sums(int64_t n, A* matrix, A* buffer) const {
    const int64_t row = row_of<I>(job_.row, n);
    if (row < 0) return;
    A* const sums = sums_of(n, row);
    const T* y = (const T*)job_.y + row * width_;
    if (kRounded || !job_.accumulate)
      for_tiles<A, 1>(width_, [&]<int, int L>(int64_t t) TENSUS_FORCE {
        store<L>(sums + t, job_.accumulate ? load<L>(y + t) : Pack<A, L>{});
      });
    if (diagonal_) mix_node_(n, diagonal_.matrices(n, matrix), job_.rank, sums, true, buffer);
  }

  void gather_rows(const MixedRelations<A>& relations) const {
    const int64_t chunks = g_.chunks(), stride = relations.count() * width_;
    share(job_.team, chunks, [&](const auto& next) {
      Scratch<A> segment(width_);
      for (int64_t chunk; (chunk = next()) >= 0;) {
        const int64_t end = g_.first_row(chunk + 1, chunks);
        for (int64_t n = g_.first_row(chunk, chunks); n < end; ++n) {
          const int64_t row = row_of<I>(job_.row, n);
          for (int64_t s = g_.row_ptr[n]; row >= 0 && s < g_.row_ptr[n + 1]; ++s) {
            const int64_t place = relations.place(g_.seg_rel[s]);
            if (place < 0) continue;
            gather_segment<0>(g_, s, Whole<A>{(const A*)job_.mixed + place * width_}, width_, stride, segment.get());
            A* const sums = sums_of(n, row);
            for_tiles<A, 1>(width_, [&]<int, int L>(int64_t t) TENSUS_FORCE {
              store<L>(sums + t, load<L>(sums + t) + load<L>(segment.get() + t));
            });
          }
        }
      }
    });
  }

  void round() const {
    share(job_.team, blocks(g_.nodes), [&](const auto& next) {
      each(next, g_.nodes, [&](int64_t n) {
        const int64_t row = row_of<I>(job_.row, n);
        if (row < 0) return;
        for_tiles<A, 1>(width_, [&]<int, int L>(int64_t t) TENSUS_FORCE {
          store<L>((T*)job_.y + row * width_ + t, load<L>(sums_of(n, row) + t));
        });
      });
    });
  }

  const MixGather& job_;
  const Rows<A, I> g_;
  const Weights<A, U> weights_;
  const Diagonal<A, I, U> diagonal_;
  const NodeMix<T, I, U> mix_node_;
  const int64_t width_;
  A* const sums_;
};

}  // namespace
}  // namespace tensus
