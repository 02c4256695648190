#include "assemble.h"

#include <algorithm>
#include <utility>

#include "share.h"

namespace tensus {
namespace {

constexpr int64_t kSmall = 8192;  // edges that one thread sorts sooner than others are called

// Memory that is not set to zero first: it is written once, all of it.
template <class T> std::unique_ptr<T[]> room(int64_t size) { return std::unique_ptr<T[]>(new T[size]); }

// Where each of 0 .. size - 1 begins among the sorted ids; null, and `outside`, if there is another among them.
template <class Index>
std::unique_ptr<Index[]> starts(const int64_t* ids, int64_t count, int64_t size, int64_t& outside) {
  auto start = std::unique_ptr<Index[]>(new Index[size + 1]());
  for (int64_t e = 0; e < count; ++e) {
    if (uint64_t(ids[e]) >= uint64_t(size)) {
      outside = ids[e];
      return nullptr;
    }
    ++start[ids[e] + 1];
  }
  for (int64_t i = 0; i < size; ++i) start[i + 1] += start[i];
  return start;
}

// of(n) for n = 0 .. nodes - 1, those without edges left out; without branches, which nobody could predict.
template <class Run, class Of> std::vector<Run> runs(int64_t nodes, int64_t edges, const Of& of) {
  std::vector<Run> all(std::min(nodes, edges) + 1);
  size_t count = 0;
  for (int64_t n = 0; n < nodes; ++n) {
    const Run run = of(n);
    all[count] = run;
    count += run.size > 0;
  }
  all.resize(count);
  return all;
}

}  // namespace

template <class Index>
Assembly<Index>::Assembly(const std::vector<EdgeList>& lists, int64_t nodes, bool positions, Team team)
    : lists_(lists), team_(team), nodes_(nodes), sorted_(lists.size()) {
  int64_t given = 0;
  for (const EdgeList& list : lists) given += list.size;
  const Team alone = [](Work work, void* context) { work(context); };
  share(given < kSmall ? alone : team, int64_t(lists.size()),
        [&](int64_t i) { sorted_[i] = sort(lists[i], positions); });
  for (size_t i = 0; i < lists.size() && !bad_; ++i) {
    bad_ = std::move(sorted_[i].bad);
    if (bad_) bad_->list = int64_t(i);
    for (const Run& run : sorted_[i].rows) edges_ += run.size;
    segments_ += int64_t(sorted_[i].rows.size());
    transposed_segments_ += int64_t(sorted_[i].cols.size());
    repeats_ |= bool(sorted_[i].times);
  }
}

// A stable sort by column, then one by row: equal edges of a row come one after the other.
template <class Index>
typename Assembly<Index>::Sorted Assembly<Index>::sort(const EdgeList& list, bool positions) {
  const int64_t size = list.size;
  Sorted sorted;
  int64_t outside = 0;
  const auto first = starts<Index>(list.row, size, list.rows, outside);
  const auto end = first ? starts<Index>(list.col, size, list.cols, outside) : nullptr;
  if (!end) {
    sorted.bad = std::make_unique<BadId>(BadId{0, outside, !first});
    return sorted;
  }
  const auto by_col = room<Edge>(size);
  const auto origin = room<Index>(positions ? size : 0);
  for (int64_t e = 0; e < size; ++e) {
    const Index at = end[list.col[e]]++;
    by_col[at] = {int32_t(list.row[e]), int32_t(list.col[e])};
    if (positions) origin[at] = Index(e);
  }

  struct Next {
    Index edge;
    int32_t last;
  };
  const auto next = room<Next>(list.rows);
  for (int64_t r = 0; r < list.rows; ++r) next[r] = {first[r], -1};
  const auto repeated = std::unique_ptr<Index[]>(new Index[list.cols]());  // edges of every column
  sorted.edges = room<Edge>(size);
  if (positions) sorted.place = room<Index>(size);
  for (int64_t k = 0; k < size; ++k) {
    const Edge edge = by_col[k];
    Next& at = next[edge.row];
    if (at.last != edge.col) {
      at.last = edge.col;
      sorted.edges[at.edge++] = edge;
    } else {
      if (!sorted.times) std::fill_n((sorted.times = room<Index>(size)).get(), size, Index(1));
      ++sorted.times[at.edge - 1];
      ++repeated[edge.col];
    }
    if (positions) sorted.place[origin[k]] = at.edge - 1;
  }
  if (sorted.times)
    for (int64_t r = 0; r < list.rows; ++r) std::fill(&sorted.edges[next[r].edge], &sorted.edges[first[r + 1]], kNone);
  sorted.rows = runs<Run>(list.rows, size,
                          [&](int64_t r) { return Run{int32_t(r), first[r], Index(next[r].edge - first[r]), 0}; });
  Index before = 0;
  sorted.cols = runs<Run>(list.cols, size, [&](int64_t c) {
    const Index all = end[c] - std::exchange(before, end[c]);
    return Run{int32_t(c), 0, Index(all - repeated[c]), 0};
  });
  return sorted;
}

template <class Index> void Assembly<Index>::fill(const Result& to) {
  const int64_t count = int64_t(lists_.size());
  share(team_, 2, [&](int64_t i) { lay_out(i, i ? to.transposed : to.forward); });
  std::vector<int64_t> before(count + 1);  // of the given edges
  for (int64_t i = 0; i < count; ++i) before[i + 1] = before[i] + lists_[i].size;
  share(team_, count, [&](int64_t i) { fill_list(i, to, to.positions ? to.positions + before[i] : nullptr); });
}

// Segments in the order of nodes, then of lists; every run learns where its edges go.
template <class Index> void Assembly<Index>::lay_out(bool transposed, const Direction& to) {
  struct Next {
    Index edge, segment;
  };
  std::vector<Next> next(nodes_ + 1);
  const auto each = [&](const auto& visit) {
    for (size_t i = 0; i < sorted_.size(); ++i) {
      Next* const range = next.data() + (transposed ? lists_[i].first_col : lists_[i].first_row);
      for (Run& run : transposed ? sorted_[i].cols : sorted_[i].rows) visit(run, range + run.node, int32_t(i));
    }
  };
  each([](const Run& run, Next* node, int32_t) { node[1].edge += run.size, ++node[1].segment; });
  for (int64_t n = 0; n < nodes_; ++n) {
    next[n + 1].edge += next[n].edge, next[n + 1].segment += next[n].segment;
    to.row_ptr[n] = next[n].segment;
  }
  to.row_ptr[nodes_] = next[nodes_].segment;
  to.seg_ptr[next[nodes_].segment] = next[nodes_].edge;
  each([&to](Run& run, Next* node, int32_t list) {
    to.seg_rel[node->segment] = list;
    to.seg_ptr[node->segment++] = run.to = node->edge;
    node->edge += run.size;
  });
}

template <class Index> void Assembly<Index>::fill_list(size_t i, const Result& to, Index* positions) const {
  const EdgeList& list = lists_[i];
  const Sorted& sorted = sorted_[i];
  const auto next = room<Index>(list.cols);
  for (const Run& run : sorted.cols) next[run.node] = run.to;
  const auto moved = room<Index>(positions ? list.size : 0);
  const Run* run = sorted.rows.data();
  for (int64_t k = 0; k < list.size; ++k) {
    const Edge edge = sorted.edges[k];
    if (edge.row == kNone.row) continue;
    run += edge.row != run->node;
    const Index at = run->to + Index(k) - run->first, back = next[edge.col]++;
    to.forward.col[at] = Index(list.first_col + edge.col);
    to.transposed.col[back] = Index(list.first_row + edge.row);
    to.perm[back] = at;
    if (to.times) to.times[at] = sorted.times ? sorted.times[k] : 1;
    if (positions) moved[k] = at;
  }
  if (positions)
    for (int64_t e = 0; e < list.size; ++e) positions[e] = moved[sorted.place[e]];
}

template class Assembly<int32_t>;
template class Assembly<int64_t>;

}  // namespace tensus
