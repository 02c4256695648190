// Blocks of a graph: what some nodes depend on within a few hops, with so many edges of a segment at most. No torch in
// sight.
#pragma once
#include <vector>

#include "../graph.h"

namespace tensus {

struct Sampling {
  Segments whole;
  const int64_t* seeds;  // node ids in any order, some perhaps twice
  int64_t count;
  const int64_t* fan_out;  // (hops, relations): how many edges of a segment are kept; negative: all
  int64_t hops;
  uint64_t seed;  // which edges are drawn depends on this and on the segment, on nothing else
};

// The rows of a block are nodes of the whole graph, ascending; edges keep their order. A node has the edges that were
// drawn at the hop that found it first, and none if that was the last.
struct Block {
  struct Structure {
    std::vector<int32_t> row_ptr, seg_rel, seg_ptr, col;
  };
  std::vector<int64_t> node;           // of each row
  std::vector<int64_t> seed_row;       // of each seed
  std::vector<int64_t> segment, edge;  // of each segment and edge, its number in the whole graph
  Structure forward, backward;
  std::vector<int32_t> perm;      // the place of an edge of `backward` in `forward`
  const char* problem = nullptr;  // why there is no block; nothing else is valid then
};

// Indices of the whole graph are checked where they are used.
template <class I> Block sample_block(const Sampling& sampling);

}  // namespace tensus
