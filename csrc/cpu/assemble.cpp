#include "assemble.h"

#include <algorithm>

namespace tensus {
namespace {

// Where the numbers 0 .. size - 1 begin, if there are so many of each as `ids` has.
std::vector<int64_t> starts(const int64_t* ids, int64_t count, int64_t size) {
  std::vector<int64_t> start(size + 1);
  for (int64_t e = 0; e < count; ++e) ++start[ids[e] + 1];
  for (int64_t i = 0; i < size; ++i) start[i + 1] += start[i];
  return start;
}

int64_t find_outside(const int64_t* ids, int64_t count, int64_t size) {
  const auto outside = [size](int64_t id) { return id < 0 || id >= size; };
  return std::find_if(ids, ids + count, outside) - ids;
}

// Memory that is not set to zero first: it is written once, all of it.
template <class T>
std::unique_ptr<T[]> room(int64_t size) {
  return std::unique_ptr<T[]>(new T[size]);
}

}  // namespace

Assembly::Assembly(const std::vector<EdgeList>& lists, int64_t nodes, bool positions)
    : nodes_(nodes), sorted_(lists.size()), rows_(nodes), cols_(nodes) {
  for (size_t i = 0; i < lists.size(); ++i) {
    const EdgeList& list = lists[i];
    for (const bool is_row : {true, false}) {
      const int64_t* ids = is_row ? list.row : list.col;
      const int64_t at = find_outside(ids, list.size, is_row ? list.rows : list.cols);
      if (at == list.size) continue;
      bad_ = std::make_unique<BadId>(BadId{int64_t(i), at, ids[at], is_row});
      return;
    }
    sort(list, sorted_[i], positions);
    count(sorted_[i], int32_t(i));
  }
}

// A stable sort by row, then one by column; then equal edges are neighbours.
void Assembly::sort(const EdgeList& list, Sorted& sorted, bool positions) {
  const int64_t size = list.size;
  auto row = room<int32_t>(size), col = room<int32_t>(size);
  auto from = room<int64_t>(positions ? size : 0);
  std::vector<int64_t> next = starts(list.row, size, list.rows);
  for (int64_t e = 0; e < size; ++e) {
    const int64_t at = next[list.row[e]]++;
    row[at] = int32_t(list.row[e]);
    col[at] = int32_t(list.col[e]);
    if (positions) from[at] = e;
  }
  sorted.row = room<int32_t>(size);
  sorted.col = room<int32_t>(size);
  auto origin = room<int64_t>(positions ? size : 0);
  next = starts(list.col, size, list.cols);
  for (int64_t k = 0; k < size; ++k) {
    const int64_t at = next[col[k]]++;
    sorted.row[at] = int32_t(row[k] + list.first_row);
    sorted.col[at] = int32_t(col[k] + list.first_col);
    if (positions) origin[at] = from[k];
  }
  sorted.given = size;
  if (positions) sorted.run = std::move(from);
  int64_t runs = 0;
  for (int64_t k = 0; k < size; ++k) {
    const int32_t r = sorted.row[k], c = sorted.col[k];
    if (runs == 0 || r != sorted.row[runs - 1] || c != sorted.col[runs - 1]) {
      sorted.row[runs] = r;
      sorted.col[runs] = c;
      ++runs;
    }
    if (positions) sorted.run[origin[k]] = runs - 1;
  }
  sorted.size = runs;
}

void Assembly::count(const Sorted& sorted, int32_t list) {
  const auto add = [list](Count& count) {
    ++count.edges;
    const bool first = count.last != list;
    count.last = list;
    count.segments += first;
    return first;
  };
  for (int64_t k = 0; k < sorted.size; ++k) {
    segments_ += add(rows_[sorted.row[k]]);
    transposed_segments_ += add(cols_[sorted.col[k]]);
  }
  edges_ += sorted.size;
}

namespace {

// The next free edge and segment of a node.
struct Next {
  int64_t edge, segment;
  int32_t last = -1;
};

template <class Count, class Index>
std::vector<Next> places(const std::vector<Count>& counts, Index* row_ptr) {
  std::vector<Next> next(counts.size());
  int64_t edge = 0, segment = 0;
  for (size_t n = 0; n < counts.size(); ++n) {
    next[n].edge = edge, next[n].segment = segment;
    row_ptr[n] = Index(segment);
    edge += counts[n].edges, segment += counts[n].segments;
  }
  row_ptr[counts.size()] = Index(segment);
  return next;
}

// The place of the next edge of a list; the first one of a list begins a segment.
template <class Index>
int64_t take(Next& next, int32_t list, int32_t* seg_rel, Index* seg_ptr) {
  if (next.last != list) {
    next.last = list;
    seg_rel[next.segment] = list;
    seg_ptr[next.segment++] = Index(next.edge);
  }
  return next.edge++;
}

}  // namespace

template <class Index>
void Assembly::fill(const Result<Index>& to) const {
  std::vector<Next> row = places(rows_, to.row_ptr), col = places(cols_, to.transposed_row_ptr);
  to.seg_ptr[segments_] = to.transposed_seg_ptr[transposed_segments_] = Index(edges_);
  Index* positions = to.positions;
  std::vector<Index> place;
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const Sorted& list = sorted_[i];
    if (positions) place.resize(list.size);
    for (int64_t k = 0; k < list.size; ++k) {
      const int32_t r = list.row[k], c = list.col[k];
      const int64_t at = take(row[r], int32_t(i), to.seg_rel, to.seg_ptr);
      const int64_t back = take(col[c], int32_t(i), to.transposed_seg_rel, to.transposed_seg_ptr);
      to.col[at] = Index(c);
      to.transposed_col[back] = Index(r);
      to.perm[back] = Index(at);
      if (positions) place[k] = Index(at);
    }
    if (!positions) continue;
    for (int64_t e = 0; e < list.given; ++e) positions[e] = place[list.run[e]];
    positions += list.given;
  }
}

template void Assembly::fill(const Result<int32_t>&) const;
template void Assembly::fill(const Result<int64_t>&) const;

}  // namespace tensus
