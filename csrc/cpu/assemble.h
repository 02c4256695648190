// From lists of edges to the structure of a graph, and its transpose, by counting sorts: no torch in sight.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"

namespace tensus {

// The edges of one relation: row[e] receives from col[e], numbers within two ranges of nodes.
struct EdgeList {
  const int64_t *row, *col;
  int64_t size;
  int64_t first_row, rows, first_col, cols;  // of the ranges
};

// An id that is in no range: of which list, whether a row, and what it is.
struct BadId {
  int64_t list, id;
  bool is_row;
};

// Sorts the edges of every list by row, then by column, and counts repeated ones once; lists are shared among the
// threads. Beyond the result this needs 8 bytes an edge, at most 16 for each row and column that a list has edges of,
// 8 more bytes for the edges of the lists in work, and what `positions` and repeated edges take.
//
// Index is the type of the result, int32_t or int64_t: it holds the number of all given edges.
template <class Index>
class Assembly {
 public:
  Assembly(const std::vector<EdgeList>& lists, int64_t nodes, bool positions, Team team);

  const BadId* bad() const { return bad_.get(); }  // if there is one, nothing else is valid
  int64_t edges() const { return edges_; }
  int64_t segments() const { return segments_; }
  int64_t transposed_segments() const { return transposed_segments_; }
  bool repeats() const { return repeats_; }  // whether an edge was given more than once

  // Where the result goes; see Segments in kernels.h.
  struct Direction {
    Index* row_ptr;
    int32_t* seg_rel;
    Index *seg_ptr, *col;
  };
  struct Result {
    Direction forward, transposed;
    Index* perm;       // the place of an edge of the transpose in the forward order
    Index* times;      // how often an edge was given; or null
    Index* positions;  // the place of every given edge in the forward order, list after list; or null
  };

  void fill(const Result& to);

 private:
  // The edges of one node in one list: those before it are sorted first, and `to` is where they go.
  struct Run {
    int32_t node;
    Index first, size, to;
  };
  struct Edge {
    int32_t row, col;
  };
  static constexpr Edge kNone{-1, -1};
  struct Sorted {
    std::vector<Run> rows, cols;     // ascending, none without edges
    std::unique_ptr<Edge[]> edges;   // by row, then by column; repeated ones leave kNone at the end of their row
    std::unique_ptr<Index[]> times;  // how often each was given; null if once
    std::unique_ptr<Index[]> place;  // of every given edge among `edges`; null without positions
    std::unique_ptr<BadId> bad;
  };

  static Sorted sort(const EdgeList& list, bool positions);
  void lay_out(bool transposed, const Direction& to);
  void fill_list(size_t i, const Result& to, Index* positions) const;

  const std::vector<EdgeList>& lists_;
  const Team team_;
  int64_t nodes_, edges_ = 0, segments_ = 0, transposed_segments_ = 0;
  bool repeats_ = false;
  std::vector<Sorted> sorted_;
  std::unique_ptr<BadId> bad_;
};

}  // namespace tensus
