// A copy of what a pass over the graph needs of a structure: the relations that its links use, at the rows that the
// states at both ends have. To copy an index costs one percent of the row of features that is then not gathered.
#pragma once
#include <memory>
#include <vector>

#include "kernels.h"

namespace tensus {

using Flags = std::vector<char>;  // one for each relation, 0 or 1

// The rows that a state has: those of some nodes, or of all.
struct StateRows {
  bool all = true;
  const void* node = nullptr;  // (count) in the index type of the graph, ascending, unless all
  int64_t count = 0;
  bool compact = true;  // row r is node[r]; else row n is node n, and rows of other nodes are not touched
};

// The number of edges of each relation. The structure is trusted: see Kernels::check.
std::vector<int64_t> count_edges(const Segments& whole, Team team);

// What a pass meets, and in which roles.
struct Meeting {
  StateRows near;
  std::vector<StateRows> far;  // of each link
  bool mixed_first;            // the pass is mix_gather, else gather_mix or edge_gradient
  bool loops;                  // nodes may be joined to themselves
};

// Relations keep their numbers, and edges their order. A row of the copy is a node that a far state has, a column is a
// row of the near one; where states are mixed first, both are nodes that any of the states has. Where they are not, and
// not all rows are there, those to which nothing leads are left out: a pass does not write to them.
class Selection {
 public:
  // With `keep_edges`, the edges' numbers are kept where they have no values, too.
  Selection(const Segments& whole, const Flags& used, const Meeting& states, bool keep_edges, Team team);
  Selection(const Selection&) = delete;

  // Without values, which are copied for each call, and without the whole structure.
  const Segments& graph() const { return graph_; }
  RowMap near_row() const { return near_row_; }
  RowMap far_row(size_t link) const { return far_row_[link]; }

  // to[f] = whole[e] for a value of every edge, or of every segment; floats or doubles of `value_bytes` bytes.
  void copy_edges(const void* whole, void* to, size_t value_bytes, Team team) const;
  void copy_segments(const void* whole, void* to, size_t value_bytes, Team team) const;
  // whole[e] += part[f] where edge e of the structure is edge f of the copy.
  void add_edges(const void* part, void* whole, size_t value_bytes, Team team) const;

 private:
  template <class I> class Maker;

  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
  Segments graph_;
  RowMap near_row_ = nullptr;
  std::vector<RowMap> far_row_;
  const void* edge_ = nullptr;     // the number of each edge in the whole structure, where it is wanted
  const void* segment_ = nullptr;  // of each segment, where these have values
};

}  // namespace tensus
