#include "assemble.h"

#include <algorithm>

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
  const auto row = room<int32_t>(size);
  const auto origin = room<Index>(positions ? size : 0);
  for (int64_t e = 0; e < size; ++e) {
    const Index at = end[list.col[e]]++;
    row[at] = int32_t(list.row[e]);
    if (positions) origin[at] = Index(e);
  }

  struct Next {
    Index edge;
    int32_t last;
  };
  const auto next = room<Next>(list.rows);
  for (int64_t r = 0; r < list.rows; ++r) next[r] = {first[r], -1};
  sorted.col = room<int32_t>(size);
  if (positions) sorted.place = room<Index>(size);
  sorted.rows.reserve(std::min(size, list.rows));
  sorted.cols.reserve(std::min(size, list.cols));
  int64_t k = 0;
  for (int32_t c = 0; c < list.cols; ++c) {
    Index different = 0;
    const int64_t begin = k;
    for (; k < end[c]; ++k) {
      Next& at = next[row[k]];
      if (at.last != c) {
        at.last = c;
        sorted.col[at.edge++] = c;
        ++different;
      } else {
        if (!sorted.times) std::fill_n((sorted.times = room<Index>(size)).get(), size, Index(1));
        ++sorted.times[at.edge - 1];
      }
      if (positions) sorted.place[origin[k]] = at.edge - 1;
    }
    if (k > begin) sorted.cols.push_back({c, 0, different, 0});
  }
  for (int32_t r = 0; r < list.rows; ++r)
    if (const Index edges = next[r].edge - first[r]) sorted.rows.push_back({r, first[r], edges, 0});
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
  for (const Run& run : sorted.rows)
    for (Index k = 0; k < run.size; ++k) {
      const int32_t c = sorted.col[run.first + k];
      const Index at = run.to + k, back = next[c]++;
      to.forward.col[at] = Index(list.first_col + c);
      to.transposed.col[back] = Index(list.first_row + run.node);
      to.perm[back] = at;
      if (to.times) to.times[at] = sorted.times ? sorted.times[run.first + k] : 1;
      if (positions) moved[run.first + k] = at;
    }
  if (positions)
    for (int64_t e = 0; e < list.size; ++e) positions[e] = moved[sorted.place[e]];
}

template class Assembly<int32_t>;
template class Assembly<int64_t>;

}  // namespace tensus
