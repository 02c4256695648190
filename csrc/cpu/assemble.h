// From lists of edges to the structure of a graph, and its transpose, by counting sorts: no torch in sight.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace tensus {

// The edges of one relation: row[e] receives from col[e], numbers within two ranges of nodes.
struct EdgeList {
  const int64_t *row, *col;
  int64_t size;
  int64_t first_row, rows, first_col, cols;  // of the ranges
};

// An id that is in no range: of which list, whether a row, where, and what it is.
struct BadId {
  int64_t list, at, id;
  bool is_row;
};

// Sorts the edges of every list by column, then by row, and drops repeated ones; from that order both directions are
// filled in one walk. Beyond the result this needs 8 bytes an edge, 8 more for those of the longest list, and what
// `positions` takes.
class Assembly {
 public:
  Assembly(const std::vector<EdgeList>& lists, int64_t nodes, bool positions);

  const BadId* bad() const { return bad_.get(); }  // if there is one, nothing else is valid
  int64_t edges() const { return edges_; }
  int64_t segments() const { return segments_; }
  int64_t transposed_segments() const { return transposed_segments_; }

  // Where the result goes; see Segments in kernels.h. Index is int32_t or int64_t.
  template <class Index>
  struct Result {
    Index* row_ptr;
    int32_t* seg_rel;
    Index *seg_ptr, *col;
    Index* transposed_row_ptr;
    int32_t* transposed_seg_rel;
    Index *transposed_seg_ptr, *transposed_col;
    Index* perm;       // the place of an edge of the transpose in the forward order
    Index* positions;  // and that of every given edge, all lists one after the other; or null
  };

  template <class Index>
  void fill(const Result<Index>& to) const;

 private:
  struct Sorted {
    std::unique_ptr<int32_t[]> row, col;
    int64_t size;
    std::unique_ptr<int64_t[]> run;  // of every given edge, the number of its equals' run; null without positions
    int64_t given;
  };
  struct Count {
    int64_t edges = 0;
    int32_t segments = 0, last = -1;  // the last list that had an edge here
  };

  static void sort(const EdgeList& list, Sorted& sorted, bool positions);
  void count(const Sorted& sorted, int32_t list);

  int64_t nodes_, edges_ = 0, segments_ = 0, transposed_segments_ = 0;
  std::vector<Sorted> sorted_;
  std::vector<Count> rows_, cols_;
  std::unique_ptr<BadId> bad_;
};

}  // namespace tensus
