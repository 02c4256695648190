// The sparse propagation on CUDA: pointers, sizes and a stream, no torch in sight. All pointers lead to device memory.
//
// The notation and the formulas are those of graph.h. Every DAG edge is served by gather_mix: mixing first would
// take two launches for each relation, and small graphs are bound by launches. Nothing here waits for the device,
// allocates, or uses atomics, so that a call can be captured in a CUDA graph and gives the same bits every time.
// The structure is trusted: looking at it would mean waiting for the device.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../graph.h"

namespace tensus::cuda {

// Storage; weights, edge values and all sums are float32, or float64 where the storage is.
enum class Real { f32, f64, f16, bf16 };

struct GatherMix {
  Segments graph;
  const void* parts;  // from find_parts, for this graph
  Loops loops;
  const void* x;  // (N, rank, F)
  int64_t rank, features;
  const Link* links;
  int64_t link_count;
};

struct EdgeGradient {
  Segments graph;
  const void* parts;
  const void* x;  // (N, rank, F), at the far end of the edges
  int64_t rank, features;
  const Link* links;
  int64_t link_count;
  void* grad;  // (E), in the type of the sums
  bool accumulate;
};

// Long rows are split, so that one of them does not hold up the others. Where they are is found on the device, once for
// several jobs on a graph, and written to memory of parts_size bytes.
size_t parts_size(const Segments&);
const char* find_parts(const Segments&, void* parts, void* stream);

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
