// The sparse propagation on CUDA: pointers, sizes and a stream, no torch in sight. All pointers lead to device memory.
//
// The notation and the formulas are those of graph.h. Every DAG edge is served by gather_mix: mixing first would
// take two launches for each relation, and small graphs are bound by launches. Nothing here waits for the device,
// allocates, or uses atomics, so that a call can be captured in a CUDA graph and gives the same bits every time.
// The structure is trusted: looking at it would mean waiting for the device.
//
// A row map (see Link::row) is by node here: (N), the row of each node in a state, -1 where the state lacks it. Without
// one, a state has all nodes. A pass works at the nodes that any of its far states has, and reads no row that is
// lacking. Where sums run over nodes, these keep their order, so that leaving out rows of zeros changes no bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../graph.h"

namespace tensus::cuda {

// Storage; weights, edge values and all sums are float32, or float64 where the storage is.
enum class Real { f32, f64, f16, bf16 };

#ifndef TENSUS_SPLIT
#define TENSUS_SPLIT 128
#endif
constexpr int kSplit = TENSUS_SPLIT;  // rows with more edges are split into parts of at most this many
constexpr int64_t kMaxMasked = 512;   // relations, where links choose among them

// Some neighbouring edges of a long row.
template <class I> struct Part {
  I row;
  I begin, end;
};

// A row that is split: its parts follow each other.
template <class I> struct LongRow {
  I row;
  I first, count;  // parts
};

// In which order warps take the rows of a graph: the parts of long rows, so that one of these does not hold up the
// others, then the other rows. All are of the graph's index type.
struct Order {
  const void* parts = nullptr;
  int64_t part_count = 0;
  const void* long_rows = nullptr;
  int64_t long_count = 0;
  const void* short_rows = nullptr;  // (N - long_count), those with most edges first; null: as they are numbered
};

struct GatherMix {
  Segments graph;
  Order order;
  Loops loops;
  const void* x;  // (N, rank, F), or the rows that `row` names
  RowMap row;
  int64_t rank, features;
  const Link* links;
  int64_t link_count;
  Groups groups;
};

struct EdgeGradient {
  Segments graph;
  Order order;
  const void* x;  // at the far end of the edges, see GatherMix
  RowMap row;
  int64_t rank, features;
  const Link* links;
  int64_t link_count;
  Groups groups;
  void* grad;       // (E), in the type of the sums
  bool accumulate;  // else every edge is overwritten: not where states lack rows, or links relations
};

// The kernels for one storage type. A call takes scratch memory of as many bytes as its `_scratch` function says,
// aligned to 16 bytes, and returns null or the error of a launch.
struct Kernels {
  size_t (*gather_mix_scratch)(const GatherMix&);
  const char* (*gather_mix)(const GatherMix&, void* scratch, void* stream);
  size_t (*edge_gradient_scratch)(const EdgeGradient&);
  const char* (*edge_gradient)(const EdgeGradient&, void* scratch, void* stream);
};

extern const Kernels kernels_f32, kernels_f64, kernels_f16, kernels_bf16;

inline const Kernels& kernels(Real real) {
  switch (real) {
    case Real::f32: return kernels_f32;
    case Real::f64: return kernels_f64;
    case Real::f16: return kernels_f16;
    default: return kernels_bf16;
  }
}

}  // namespace tensus::cuda
