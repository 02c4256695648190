// The values of edges that were given without any: no torch in sight.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace tensus {

// What is normalised: a structure (see Segments in kernels.h) and how often its edges were given.
template <class Index> struct CountedEdges {
  const int32_t* seg_rel;
  const Index *seg_ptr, *perm;
  const Index* times;  // of every edge; or null: once
  int64_t segments, edges;
};

template <class Value> struct NormalizedValues {
  Value* value;       // of every edge; or of every segment, where `times` is null
  Value* loop;        // of every segment's self-loop
  Value* transposed;  // of every edge of the transpose
};

// What was found: whether some scale is not 1, whether that changed a self-loop, and what is wrong with the structure.
struct Normalized {
  bool values, loops;
  const char* error;
};

// Each edge is worth as often as it was given; where divide[i], every row of relation i is divided by its sum, in which
// its self-loop counts loop[i].
template <class Value, class Index>
Normalized normalize(const CountedEdges<Index>& edges, const std::vector<uint8_t>& divide, const Value* loop,
                     const NormalizedValues<Value>& to, Team team);

}  // namespace tensus
