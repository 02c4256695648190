// What the kernels share: the arguments of a pass, the warps that work on rows, the weights in the order in which they
// are read, and the parts of long rows.
#pragma once
#include "device.h"
#include "kernels.h"

namespace tensus::cuda {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kBlocks = 8;       // on a multiprocessor at least, as far as registers go: 64 of them a thread
constexpr int kMaxColumns = 16;  // in one launch
constexpr int kMaxGroups = 64;   // of features, in one launch
constexpr uint32_t kWarp = ~0u;  // all lanes take part in every exchange

// One rank index q of the far state of a link. Every link gives as many columns as its rank.
struct Column {
  const void* w;  // w[g * group + i * step + p * near]
  int64_t group, step, near;
  void* out;  // see `place`; or null
  const void* other;
  uint32_t stride;
  RowMap row;
  void* dw;  // laid out as w, or null
  bool accumulate;
};

// Which relations are used.
struct Mask {
  uint32_t bits[kMaxMasked / 32];

  __host__ __device__ __forceinline__ bool has(int relation) const {
    return bits[relation / 32] >> (relation % 32) & 1;
  }
};

template <class I> struct UnitOf {
  using type = uint32_t;
};
template <> struct UnitOf<int64_t> {
  using type = uint64_t;
};
template <class I> using Unit = typename UnitOf<I>::type;

template <class A, class I> struct Pass {
  const I* row_ptr;
  const int32_t* seg_rel;
  const I* seg_ptr;
  const I* col;
  const A* seg_val;
  const A* edge_val;
  int64_t nodes, edges;
  int relations;

  const A* loop;  // see Loops
  const A* seg_loop;
  const I* pair_ptr;
  const int32_t* pair_rel;

  const void* x;  // (N, rank, F), or the rows that `row` names
  RowMap row;
  int rank, features;
  uint32_t pitch;  // bytes of a node of x

  // A launch covers the features [begin, end), in groups. Those of a lane are all of one group.
  int begin, end;
  int groups, group_end[kMaxGroups];  // ascending to `end`

  Column column[kMaxColumns];
  int columns;
  bool some;  // whether columns have some rows only

  bool masked;               // else every column uses every relation
  Mask used;                 // by any column
  Mask chosen[kMaxColumns];  // by each

  // A warp takes a row. A lane of a team owns some neighbouring features; a team adds up a share of the edges, and the
  // first `mixers` of them own some of the columns each.
  int lanes, lane_bits, teams, mixers;  // lanes: 1 << lane_bits

  // The weights, packed: see `pack`. There are `packed` numbers, in global memory or, if null, in shared memory;
  // those of a group are `group_size`.
  int ranks, width, group_size, packed;
  const A* w;

  const Part<I>* parts;
  const LongRow<I>* long_rows;
  const I* short_rows;  // see Order
  Unit<I> part_count;
  Unit<I> units;  // of work: parts, then short rows

  A* dw;           // gather_mix: `packed` sums for every warp, in global memory or, if null, in shared memory
  A* partial_dw;   // those of each block
  A* partial_out;  // of the parts of long rows: (parts, columns, F)
  int64_t long_count;
  int row_threads;  // of those that add up the parts of a row
  A* grad;          // edge_gradient
  bool accumulate;
  int blocks;
};

// ---------------------------------------------------------------------------------------------- threads

// Sizes are powers of two. Everything follows from the number of the thread, so that it need not stay in registers.
__device__ __forceinline__ int warp_index() { return fresh(int(threadIdx.x)) / 32; }  // in its block
template <class A, class I> __device__ __forceinline__ int lane_of(const Pass<A, I>& pass) {
  return fresh(int(threadIdx.x)) & (pass.lanes - 1);
}
template <class A, class I> __device__ __forceinline__ int team_of(const Pass<A, I>& pass) {
  return (fresh(int(threadIdx.x)) & 31) >> pass.lane_bits;
}

// The sum over the threads of a warp that differ in the bits [from, to) of their number, which are powers of two.
template <class A> __device__ __forceinline__ A sum_over(A value, int from, int to) {
#pragma unroll 1
  for (int bit = from; bit < to; bit <<= 1) value += __shfl_xor_sync(kWarp, value, bit);
  return value;
}

// ---------------------------------------------------------------------------------------------- weights

template <class A, class I> __device__ __forceinline__ bool uses(const Pass<A, I>& pass, int relation) {
  return !pass.masked || pass.used.has(relation);
}

template <class A, class I> __device__ __forceinline__ bool uses(const Pass<A, I>& pass, int relation, int column) {
  return !pass.masked || pass.chosen[column].has(relation);
}

// Where a packed number belongs.
struct Packed {
  int group, relation, rank, column;

  template <class A, class I> __device__ __forceinline__ Packed(const Pass<A, I>& pass, int k) {
    column = k % pass.width, k /= pass.width;
    rank = k % pass.ranks, k /= pass.ranks;
    relation = k % (pass.relations + 1), group = k / (pass.relations + 1);
  }
};

// The group of a feature.
template <class A, class I> __device__ __forceinline__ int group_of(const Pass<A, I>& pass, int f) {
  int g = 0;
#pragma unroll 1
  while (g + 1 < pass.groups && f >= pass.group_end[g]) ++g;
  return g;
}

// to[((g * (C + 1) + i) * ranks + p) * width + c] = w of group g and relation i from p to column c, zero beyond the
// last rank and column and where the column does not use the relation; relation C is the sum of the others by their
// self-loops.
template <class A, class I>
__device__ void pack(const Pass<A, I>& pass, A* to, int thread, int threads) {
#pragma unroll 1
  for (int k = thread; k < pass.packed; k += threads) {
    const Packed at(pass, k);
    const int i = at.relation, c = at.column;
    A value = 0;
    if (c < pass.columns && at.rank < pass.rank) {
      const Column& column = pass.column[c];
      const A* w = static_cast<const A*>(column.w) + at.group * column.group + at.rank * column.near;
      if (i < pass.relations) value = uses(pass, i, c) ? read_only(w + i * column.step) : A(0);
      else if (pass.loop)
#pragma unroll 1
        for (int r = 0; r < pass.relations; ++r)
          if (uses(pass, r, c)) value += pass.loop[r] * read_only(w + r * column.step);
    }
    to[k] = value;
  }
}

template <class A, class I>
__global__ void __launch_bounds__(kThreads) pack_weights(const __grid_constant__ Pass<A, I> pass) {
  pack(pass, const_cast<A*>(pass.w), int(blockIdx.x * kThreads + threadIdx.x), int(gridDim.x * kThreads));
}

// ---------------------------------------------------------------------------------------------- units of work

// The row of a node in a state, or -1.
template <class I> __device__ __forceinline__ I row_of(RowMap map, I node) {
  return map ? static_cast<const I*>(map)[node] : node;
}

// What a warp takes at a time: first the parts of long rows, which take the longest, then the other rows.
template <class A, class I> __device__ __forceinline__ bool is_part(const Pass<A, I>& pass, Unit<I> unit) {
  return unit < pass.part_count;
}

template <class A, class I> __device__ __forceinline__ I node_of(const Pass<A, I>& pass, Unit<I> unit) {
  if (is_part(pass, unit)) return pass.parts[unit].row;
  const Unit<I> place = unit - pass.part_count;
  return pass.short_rows ? pass.short_rows[place] : I(place);
}

// Whether a warp has to do with a unit: not with a node that no column has.
template <class A, class I> __device__ __forceinline__ bool has_work(const Pass<A, I>& pass, Unit<I> unit) {
  if (!pass.some) return true;
  const int c = fresh(int(threadIdx.x)) % 32;
  return __any_sync(kWarp, c < pass.columns && row_of(pass.column[c].row, node_of(pass, unit)) >= 0);
}

// Whether it is a row, or the first part of one.
template <class A, class I> __device__ __forceinline__ bool begins_row(const Pass<A, I>& pass, Unit<I> unit, I node) {
  return !is_part(pass, unit) || pass.parts[unit].begin == pass.seg_ptr[pass.row_ptr[node]];
}

// The edges of segment s that belong to a unit.
template <class I> struct Edges {
  I begin, end;
};

template <class A, class I> __device__ __forceinline__ Edges<I> edges_of(const Pass<A, I>& pass, Unit<I> unit, I s) {
  const I begin = pass.seg_ptr[s], end = pass.seg_ptr[s + 1];
  if (!is_part(pass, unit)) return {begin, end};
  return {larger(begin, pass.parts[unit].begin), smaller(end, pass.parts[unit].end)};
}

// ---------------------------------------------------------------------------------------------- rows of states

// The features from f on of a node in an array of a column; null where its state lacks the node.
template <class N, class I, class P>
__device__ __forceinline__ N* place(P* array, const Column& column, I node, int f) {
  const I row = row_of(column.row, node);
  return row < 0 ? nullptr : static_cast<N*>(array) + uint64_t(Unit<I>(row)) * column.stride + f;
}

// The features [f, f + V) of the ranks p0, ..., p0 + P - 1 of node 0; those of another node are `pitch` bytes on.
template <class T, class A, class I>
__device__ __forceinline__ const char* first_node(const Pass<A, I>& pass, int p0, int f) {
  return static_cast<const char*>(pass.x) + (int64_t(p0) * pass.features + f) * int64_t(sizeof(T));
}

// They, in registers; zero beyond the last rank.
template <class T, int P, int V> struct Rows {
  Vec<T, V> rank[P];

  __device__ __forceinline__ Rows() : rank{} {}

  template <class A, class I>
  __device__ __forceinline__ void read(const Pass<A, I>& pass, const char* first, I row, int p0) {
    const T* from = reinterpret_cast<const T*>(first + uint64_t(Unit<I>(row)) * pass.pitch);
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (p == 0 || p0 + p < pass.rank) rank[p] = load<V>(from + uint32_t(p * pass.features));
  }
};

}  // namespace tensus::cuda
