// The links of a walk: the states of a block move along edges, and their gradients move back.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "columns.h"
#include "frontier.h"

namespace tensus {

// The graph as a block sees it: all of it, or what its frontier touches, entities being numbered as they are reached.
template <class Real> struct View {
  const int64_t* ptr;  // the edges that leave row n are ptr[n] .. ptr[n + 1], those of one operator side by side
  const int32_t* op;
  const int32_t* target;
  const Real* value;
};

// The edges of the facts that are taken out of the graph, and the columns that do not see them.
class HiddenEdges {
 public:
  explicit HiddenEdges(int64_t rows) : touched_(rows, 0) {}

  void hide(int64_t row, int64_t edge, int64_t column) {
    if (count_ == kMost) return;
    int64_t at = count_++;
    for (; at > 0 && hidden_[at - 1].edge > edge; --at) hidden_[at] = hidden_[at - 1];
    hidden_[at] = {row, edge, column};
    touched_[row] = 1;
  }

  void clear() {
    for (; count_ > 0; --count_) touched_[hidden_[count_ - 1].row] = 0;
  }

  // Calls visit(first, last, value), value(edge) being a number, for edges of a row that all columns see, and with a
  // number for each column where some do not.
  template <class Real, int B, class Visit>
  TENSUS_INLINE void each_stretch(const View<Real>& view, int64_t row, const Visit& visit) const {
    int64_t first = view.ptr[row];
    const int64_t last = view.ptr[row + 1];
    const auto all_see = [&](int64_t edge) __attribute__((always_inline)) { return view.value[edge]; };
    const auto some_see = [&](int64_t edge) { return seen<Real, B>(edge, view.value[edge]); };
    if (__builtin_expect(touched_[row], 0)) {
      for (int64_t k = 0; k < count_; ++k) {
        const int64_t edge = hidden_[k].edge;
        if (edge < first || edge >= last) continue;  // done, for another column; or of another row
        visit(first, edge, all_see);
        visit(edge, edge + 1, some_see);
        first = edge + 1;
      }
    }
    visit(first, last, all_see);
  }

 private:
  struct Hidden {
    int64_t row, edge, column;
  };
  static constexpr int64_t kMost = 4 * kWidth;  // there and back, and a loop may be met from both its ends

  // The value of an edge for the columns that see it, 0 for the others.
  template <class Real, int B> Columns<Real, B> seen(int64_t edge, Real value) const {
    Columns<Real, B> x;
    for (int64_t c = 0; c < B; ++c) lane<Real, B>(&x, c) = value;
    for (int64_t k = 0; k < count_; ++k)
      if (hidden_[k].edge == edge) lane<Real, B>(&x, hidden_[k].column) = 0;
    return x;
  }

  Hidden hidden_[kMost];  // sorted by edge
  int64_t count_ = 0;
  std::vector<uint8_t> touched_;  // the rows that have one
};

// One link, in one direction: states (rows, P, B) and (rows, Q, B), weights (operators, P, Q).
template <class Real, int B> struct LinkJob {
  View<Real> view;
  const HiddenEdges* hidden;
  const int64_t* rows;  // that the tail has reached
  int64_t row_count;
  int64_t P, Q;
  const Real* w;
  Columns<Real, B>* tail;
  Columns<Real, B>* head;       // forward: the state; backward: its gradient
  Columns<Real, B>* tail_grad;  // backward only
  Partial<Real, B>* dw;         // backward only
  Columns<Real, B>* room;       // for Q of them
};

// head[v, q] += sum over edges (u, v) with operator i of value * sum_p w[i, p, q] tail[u, p]
void push(const LinkJob<float, 1>&);
void push(const LinkJob<double, 1>&);
void push(const LinkJob<float, kWidth>&);
void push(const LinkJob<double, kWidth>&);

// The derivatives of that by w and the tail, added to dw and tail_grad.
void pull(const LinkJob<float, 1>&);
void pull(const LinkJob<double, 1>&);
void pull(const LinkJob<float, kWidth>&);
void pull(const LinkJob<double, kWidth>&);

}  // namespace tensus
