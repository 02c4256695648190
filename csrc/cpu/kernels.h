// The sparse propagation on the CPU: pointers and sizes, no torch in sight.
//
// Notation: N nodes, C relations, F features. A state is a dense array (N, rank, F). Storage is float32, float64
// or bfloat16; weights, edge values and every sum are float32, or float64 where the storage is float64.
//
//   gather_mix     y_l[n, q] += sum_{i,p} w_l[i, p, q] (A^i x)[n, p]                            for every link l
//                  dw_l[i, p, q] = sum_n <(A^i x)[n, p], other_l[n, q]>
//   mix_gather     y[n, q]   += sum_i A^i ( sum_l sum_p w_l[i, p, q] x_l[., p] )[n]
//   edge_gradient  da[e]     += sum_{l,p,q} w_l[i, p, q] <x[col_e, p], other_l[row_e, q]>       i: the edge's relation
//
// One sparse pass of width P serves all its links, whatever their number. Nothing of size C * N, nor of the number of
// segments, is written to memory. Results do not depend on the number of threads, bit by bit.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensus {

enum class Real { f32, f64, bf16 };

// Runs work(context) on every thread of a team at once and returns when all have returned. One thread is a team.
using Work = void (*)(void* context);
using Team = void (*)(Work work, void* context);

// All relations in one sparse structure: row n owns the segments row_ptr[n] .. row_ptr[n + 1], one for each relation
// with an edge into n, and segment s owns the edges seg_ptr[s] .. seg_ptr[s + 1] from the nodes col.
struct Segments {
  bool wide;  // int64 indices, else int32 (seg_rel is always int32)
  int64_t nodes, relations, segments, edges;
  const void* row_ptr;
  const int32_t* seg_rel;
  const void* seg_ptr;
  const void* col;
  const void* seg_val;   // a value for each segment, or null
  const void* edge_val;  // a value for each edge, or null; the value of an edge is the product
};

// The diagonal of every relation: loop[i], except on the pairs (row, relation) of `pairs`, where it is seg_loop.
struct Loops {
  const void* loop;       // (C), or null: no diagonal anywhere
  const void* seg_loop;   // (segments of `pairs`), or null: no exceptions
  const Segments* pairs;  // only row_ptr and seg_rel are read
};

// One edge of the DAG as a pass sees it: the pass works at the near state, of rank P; the link leads to the far one.
struct Link {
  int64_t rank;                // of the far state
  const void* w;               // w[i * step + p * near + q * far], p at the near state, q at the far one
  int64_t step, near, far;     // step = P * rank: each relation's matrix is contiguous, one way round or the other
  void* out;                   // (N, rank, F) or null
  bool accumulate;             // add to `out` rather than overwrite it
  const void* other;           // (N, rank, F): what `dw` is taken against (gather_mix), or the source (the other two)
  void* dw;                    // overwritten, laid out as w; or null
};

struct GatherMix {
  Segments graph;
  Loops loops;
  const void* x;  // (N, rank, F)
  int64_t rank, features;
  const Link* links;
  int64_t link_count;
  Team team;
};

struct MixGather {
  Segments graph;
  Loops loops;
  const int64_t* rel_ptr;    // (C + 1): segments of relation i are order[rel_ptr[i]] .. order[rel_ptr[i + 1]]
  const int64_t* order;      // (S)
  const int64_t* order_row;  // (S): the row of each
  void* y;                   // (N, rank, F)
  bool accumulate;
  int64_t rank, features;
  const Link* links;  // here p belongs to the far state `other` and q to y, so `near` is the stride of q
  int64_t link_count;
  void* mixed;  // workspace for (N, rank, F) sums: one relation at a time
  void* sums;   // the same again: y before it is rounded, where sums are wider than the storage; else not used
  Team team;
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
};

// The kernels, compiled for one instruction set.
struct Kernels {
  const char* isa;
  void (*gather_mix)(Real, const GatherMix&);
  void (*mix_gather)(Real, const MixGather&);
  void (*edge_gradient)(Real, const EdgeGradient&);
  // Null if the structure is sound (monotone pointers that end where they should, every index in range),
  // else what is wrong. Everything else trusts the structure, so call this first.
  const char* (*check)(const Segments&, Team);
};

// The kernels in use: the best this machine runs, or the ones that were asked for.
const Kernels& kernels();
// Chooses "plain", "avx2", "avx512" or, with null, the best. False where it is not built or the machine lacks it.
bool use_kernels(const char* isa);
// The i-th set that was built, null past the last; runnable says whether this machine has the instructions.
const Kernels* built_kernels(size_t i, bool* runnable);

}  // namespace tensus
