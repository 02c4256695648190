// What a pass over the graph reads and writes, on any device: pointers and sizes, no torch in sight.
//
// Notation: N nodes, C relations, F features. A state is a dense array (N, rank, F). Weights, edge values and every sum
// are float32, or float64 where the storage of the states is float64.
//
//   gather_mix     y_l[n, q] += sum_{i,p} w_l[i, p, q] (A^i x)[n, p]                            for every link l
//                  dw_l[i, p, q] = sum_n <(A^i x)[n, p], other_l[n, q]>
//   mix_gather     y[n, q]   += sum_i A^i ( sum_l sum_p w_l[i, p, q] x_l[., p] )[n]
//   edge_gradient  da[e]     += sum_{l,p,q} w_l[i, p, q] <x[col_e, p], other_l[row_e, q]>       i: the edge's relation
//
// One sparse pass of width P serves all its links, whatever their number. Nothing of size C * N, nor of the number of
// segments, is written to memory.
//
// Where feature columns are in groups, every group has weights of its own: w_l and dw_l above are then w_l[g] and
// dw_l[g], g being the group of the column, and the inner product of a group's dw runs over its columns.
#pragma once
#include <cstdint>

namespace tensus {

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
  // Only of a part of a structure (see cpu/select.h). Its chunks of rows are cut where those of the whole are, so that
  // sums over rows are added in the same order, to the same bits.
  const void* node = nullptr;  // (nodes): the node of each row, ascending; null: row n is node n
  const Segments* whole = nullptr;
};

// The diagonal of every relation: loop[i], except on the pairs (row, relation) of `pairs`, where it is seg_loop.
struct Loops {
  const void* loop;       // (C), or null: no diagonal anywhere
  const void* seg_loop;   // (segments of `pairs`), or null: no exceptions
  const Segments* pairs;  // only row_ptr and seg_rel are read
};

// The rows of the states that meet at a row of a pass are numbered by maps: (rows of the pass), -1 where the state
// lacks the row. Null stands for the row itself.
using RowMap = const void*;

// The rows of a state from `border` on, where they stand apart from the others; null: there are none.
struct Halo {
  const void* rows = nullptr;
  int64_t border = INT64_MAX;
};

// Groups of feature columns: group g owns the columns end[g - 1] .. end[g], which may be none.
struct Groups {
  int64_t count = 1;
  const int64_t* end = nullptr;  // (count), ascending to F; null: one group
};

// One edge of the DAG as a pass sees it: the pass works at the near state, of rank P; the link leads to the far one.
struct Link {
  int64_t rank;             // of the far state
  const void* w;            // w[i * step + p * near + q * far], p at the near state, q at the far one
  int64_t step, near, far;  // step = P * rank: each relation's matrix is contiguous, one way round or the other
  void* out;                // (N, rank, F) or null
  bool accumulate;          // add to `out` rather than overwrite it
  const void* other;        // (N, rank, F): what `dw` is taken against (gather_mix), or the source (the other two)
  void* dw;                 // overwritten, laid out as w; or null
  RowMap row = nullptr;     // the row of the far state
  char* written = nullptr;  // (rows of `out`), not null: overwrite rows where it is 0, and set it to 1 (gather_mix)
  int64_t group = 0;        // from the weights of a group to those of the next, in w and in dw
  Halo halo = {};           // of `other` (mix_gather)
  const int64_t* chosen = nullptr;  // (C): 1 where it uses the relation, else 0; null: w is zero where it does not
};

}  // namespace tensus
