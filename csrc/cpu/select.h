// A copy of those relations of a structure that a pass over the graph uses: to copy an index costs one percent of the
// row of features that is then not gathered.
#pragma once
#include <memory>
#include <vector>

#include "kernels.h"

namespace tensus {

using Flags = std::vector<char>;  // one for each relation, 0 or 1

struct Size {
  int64_t segments = 0, edges = 0;

  Size& operator+=(const Size& other) {
    segments += other.segments, edges += other.edges;
    return *this;
  }
};

// A structure in which the segments of each relation have been counted. It is trusted: see Kernels::check.
class Counted {
 public:
  Counted(const Segments& whole, Team team);

  int64_t edges(int64_t relation) const { return edges_[relation]; }

 private:
  friend class Selection;
  int64_t first_row(int64_t chunk) const;
  const Size& at(int64_t chunk, int64_t relation) const { return sizes_[chunk * whole_.relations + relation]; }

  const Segments whole_;
  const Team team_;
  int64_t chunks_;           // of rows
  std::vector<Size> sizes_;  // (chunks, relations)
  std::vector<int64_t> edges_;
};

// A copy of the segments of some relations; these keep their numbers and their order.
class Selection {
 public:
  // A value has `value_bytes` bytes: it is a float or a double.
  Selection(const Counted& from, const Flags& used, size_t value_bytes);

  const Segments& graph() const { return graph_; }

  // whole[e] += part[f] where edge e of the structure is edge f of the copy; both in the type of the values.
  void add_back(const void* part, void* whole) const;

 private:
  template <class I> void copy();
  template <class I, class A> void add_back_typed(const A* part, A* whole) const;

  const Counted& from_;
  const Flags used_;
  const size_t value_bytes_;
  std::vector<Size> start_;  // of each chunk, in the copy
  std::unique_ptr<char, void (*)(void*)> memory_;
  Segments graph_;
};

}  // namespace tensus
