// The sparse propagation on the CPU; see graph.h for the notation and the formulas.
//
// States are stored as float32, float64, bfloat16 or float16. Results do not depend on the number of threads, bit by
// bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../graph.h"

namespace tensus {

enum class Real { f32, f64, bf16, f16 };

// Runs work(context) on every thread of a team at once and returns when all have returned. One thread is a team.
using Work = void (*)(void* context);
using Team = void (*)(Work work, void* context);

struct GatherMix {
  Segments graph;
  Loops loops;
  const void* x;  // (N, rank, F)
  int64_t rank, features;
  const Link* links;
  int64_t link_count;
  Team team;
  RowMap row = nullptr;  // of x
  Groups groups = {};
  Halo halo = {};  // of x
};

struct MixGather {
  Segments graph;
  Loops loops;
  void* y;  // (N, rank, F)
  bool accumulate;
  int64_t rank, features;
  const Link* links;  // here p belongs to the far state `other` and q to y, so `near` is the stride of q
  int64_t link_count;
  int64_t at_once;  // so many relations are mixed before they are gathered; at least 1
  void* mixed;      // workspace for (N, at_once * rank, F) sums
  void* sums;       // for (N, rank, F): y before it is rounded, where sums are wider than the storage; else not used
  Team team;
  RowMap row = nullptr;  // of y
  Groups groups = {};
};

struct EdgeGradient {
  Segments graph;
  const void* x;  // (N, rank, F), at the far end of the edges
  int64_t rank, features;
  const Link* links;
  int64_t link_count;
  void* grad;  // (E), in the type of the sums
  bool accumulate;
  Team team;
  Groups groups = {};
};

// The kernels, compiled for one instruction set.
struct Kernels {
  const char* isa;
  void (*gather_mix)(Real, const GatherMix&);
  void (*mix_gather)(Real, const MixGather&);
  void (*edge_gradient)(Real, const EdgeGradient&);
  // Null if a structure of so many columns is sound (monotone pointers that end where they should, every index in
  // range), else what is wrong; without seg_ptr, row_ptr and seg_rel alone count. Everything else trusts the structure,
  // so call this first.
  const char* (*check)(const Segments&, int64_t columns, Team);
};

// The kernels in use: the best this machine runs, or the ones that were asked for.
const Kernels& kernels();
// Chooses "plain", "avx2", "avx512" or, with null, the best. False where it is not built or the machine lacks it.
bool use_kernels(const char* isa);
// The i-th set that was built, null past the last; runnable says whether this machine has the instructions.
const Kernels* built_kernels(size_t i, bool* runnable);

}  // namespace tensus
