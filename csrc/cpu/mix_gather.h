// Mix, then gather: the states of all links are mixed first, and one narrow sparse pass gathers the result.
#pragma once
#include "weights.h"

namespace tensus {
namespace {

// For a narrow y and wide links: the states are mixed first, a relation at a time, and the narrow result is gathered.
template <class T, class I, int U> class MixGatherPass {
  using A = Sum<T>;
  static constexpr bool kRounded = sizeof(T) < sizeof(A);

 public:
  explicit MixGatherPass(const MixGather& job)
      : job_(job), g_(job.graph),
        weights_(job.links, job.link_count, g_.relations, job.rank, false, {job.groups, job.features}),
        diagonal_(job.loops, job.graph, weights_), mix_node_(job.links, job.link_count, job.rank, job.features),
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
  // The sums of row n of the pass: in a workspace of its rows, or in place, in a row of y.
  A* sums_of(int64_t n, int64_t row) const { return sums_ + (kRounded ? n : row) * width_; }

  // The sums begin with the share of the self-loops, on top of y where that is to be kept.
  void mix_diagonal() const {
    share(job_.team, blocks(g_.nodes), [&](const auto& next) {
      Scratch<A> matrix(weights_.size()), buffer(mix_node_.buffer_size());
      each(next, g_.nodes, [&](int64_t n) {
        const int64_t row = row_of<I>(job_.row, n);
        if (row < 0) return;
        A* const sums = sums_of(n, row);
        const T* y = (const T*)job_.y + row * width_;
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
      each(next, g_.nodes,
           [&](int64_t n) { mix_node_(n, weights_.of(i), (A*)job_.mixed + n * width_, false, buffer.get()); });
    });
  }

  void gather_relation(int64_t i) const {
    const int64_t begin = job_.rel_ptr[i], count = job_.rel_ptr[i + 1] - begin;
    share(job_.team, blocks(count), [&](const auto& next) {
      Scratch<A> segment(width_);
      each(next, count, [&](int64_t k) {
        gather_segment<0>(g_, job_.order[begin + k], (const A*)job_.mixed, width_, segment.get());
        const int64_t n = job_.order_row[begin + k];
        A* const sums = sums_of(n, row_of<I>(job_.row, n));
        for_tiles<A, 1>(width_, [&]<int, int L>(int64_t t) TENSUS_FORCE {
          store<L>(sums + t, load<L>(sums + t) + load<L>(segment.get() + t));
        });
      });
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
