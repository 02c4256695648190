// The weights of the links of a pass as the inner loops want them, those of the self-loops, and what mixes one node by
// them.
#pragma once
#include "inner_loops.h"

namespace tensus {
namespace {

// The weights of all links of a pass: for each relation the links' matrices one after the other, each row by row.
// From the near state a matrix has the near rank as rows and the far one as columns, else the other way round. Every
// entry is a number for each stripe of features.
template <class A, int U> class Weights {
 public:
  Weights(const Link* links, int64_t count, int64_t relations, int64_t rank, bool from_near,
          const Stripes<A, U>& stripes)
      : links_(links), count_(count), rank_(rank), from_near_(from_near), entries_(total(links, count)),
        size_(entries_ * stripes.count()), packed_(relations * size_) {
    for (int64_t i = 0; i < relations; ++i)
      each_entry([&](int64_t l, int64_t at, int64_t k) {
        const A* const entry = (const A*)links[l].w + i * links[l].step + at;
        A* const packed = &packed_[i * size_ + k * stripes.count()];
        stripes.each([&](int64_t s, int64_t g) { packed[s] = entry[g * links[l].group]; });
      });
  }

  int64_t entries() const { return entries_; }  // of the matrices of a relation
  int64_t size() const { return size_; }        // numbers for each relation
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
  int64_t entries_, size_;
  Scratch<A> packed_;
};

// The diagonals of all relations mix node n with itself: by one matrix, the sum of loop[i] * w[i] over relations, as
// if no pair of the row were special, corrected for those that are. No sparse work, and no work per relation.
template <class A, class I, int U> class Diagonal {
 public:
  Diagonal(const Loops& loops, const Segments& graph, const Weights<A, U>& weights)
      : loop_((const A*)loops.loop), seg_loop_((const A*)loops.seg_loop), row_ptr_((const I*)loops.pairs->row_ptr),
        seg_rel_(loops.pairs->seg_rel), node_(graph.node), weights_(weights), base_(weights.size()) {
    if (!loop_) return;
    for (int64_t k = 0; k < weights.size(); ++k) base_[k] = 0;
    for (int64_t i = 0; i < graph.relations; ++i)
      for (int64_t k = 0; k < weights.size(); ++k) base_[k] += loop_[i] * weights.of(i)[k];
  }

  explicit operator bool() const { return loop_; }
  A loop(int64_t relation) const { return loop_[relation]; }

  // correct(relation, weight) for each special pair of row n.
  template <class Correct> TENSUS_INLINE void each_correction(int64_t n, const Correct& correct) const {
    if (!seg_loop_) return;
    const int64_t m = row_of<I>(node_, n);
    for (int64_t s = row_ptr_[m]; s < row_ptr_[m + 1]; ++s) correct(seg_rel_[s], seg_loop_[s] - loop_[seg_rel_[s]]);
  }

  // The matrices of all links for node n, in `buffer` where they are not those of every node.
  TENSUS_INLINE const A* matrices(int64_t n, A* buffer) const {
    const int64_t m = row_of<I>(node_, n);
    if (!seg_loop_ || row_ptr_[m] == row_ptr_[m + 1]) return base_.get();
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
  const RowMap node_;
  const Weights<A, U>& weights_;
  Scratch<A> base_;
};

// out (+)= sum over the links of their matrix, of so many columns, times their state `other` at row n of the pass.
template <class T, class I, int U> class NodeMix {
  using A = Sum<T>;

 public:
  NodeMix(const Link* links, int64_t count, int64_t features) : links_(links), count_(count), features_(features) {
    for (int64_t l = 0; l < count; ++l) widest_ = widest_ < links[l].rank ? links[l].rank : widest_;
  }

  int64_t buffer_size() const { return widest_ * features_; }

  TENSUS_INLINE void operator()(int64_t n, const A* matrices, int64_t columns, A* out, bool accumulate,
                                A* buffer) const {
    const int64_t stripes = count_stripes<U, A>(features_);
    for (int64_t l = 0; l < count_; matrices += links_[l++].rank * columns * stripes) {
      const int64_t row = row_of<I>(links_[l].row, n), size = links_[l].rank * features_;
      if (row < 0) continue;
      const Parted<T> state(links_[l].other, links_[l].halo, size);
      const A* block = as_sums(state.row(row, size), size, buffer);
      mix<0, 0, 0, U>(&block, &matrices, 1, links_[l].rank, columns, features_, out, accumulate);
      accumulate = true;
    }
    if (!accumulate)
      for_tiles<A, 1>(columns * features_,
                      [&]<int, int L>(int64_t t) TENSUS_FORCE { store<L>(out + t, Pack<A, L>{}); });
  }

 private:
  const Link* links_;
  int64_t count_, features_;
  int64_t widest_ = 0;
};

}  // namespace
}  // namespace tensus
