// What the kernels share: the arguments of a pass, the groups of threads that work on a row, the weights in the order
// in which they are read, and the split of long rows.
#pragma once
#include "device.h"

namespace tensus::cuda {

constexpr int kThreads = 128;
constexpr int kBlocks = 8;       // on a multiprocessor at least, as far as registers go: 64 of them a thread
constexpr int kMaxColumns = 16;  // in one launch
#ifndef TENSUS_SPLIT
#define TENSUS_SPLIT 128
#endif
constexpr int kSplit = TENSUS_SPLIT;  // rows with more edges are split into parts of at most this many

// One rank index q of the far state of a link. Every link gives as many columns as its rank.
struct Column {
  const void* w;  // w[i * step + p * near]
  int64_t step, near;
  void* out;  // out[n * stride + f], or null
  const void* other;
  int64_t stride;
  void* dw;  // laid out as w, or null
  bool accumulate;
};

// Some neighbouring edges of one row, at most kSplit.
template <class I> struct Part {
  I row;
  I begin, end;
  I first;  // whether it is the first of its row; any other part without edges is unused
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

  const void* x;  // (N, rank, F)
  int rank, features;
  uint32_t pitch;  // bytes of a node of x
  Column column[kMaxColumns];
  int columns;

  // A group is teams * lanes threads of one warp. A lane owns some neighbouring features; a team adds up a share of the
  // edges, and in gather_mix owns some of the columns.
  int lanes, teams, groups;  // groups: of a block

  // The weights, packed: see `pack`. There are `packed` numbers, in global memory or, if null, in shared memory.
  int ranks, width, packed;
  const A* w;

  const Part<I>* parts;  // of the long rows
  Unit<I> units;         // of work: rows and parts

  A* dw;           // gather_mix: `packed` sums for every group, in global memory or, if null, in shared memory
  A* partial_dw;   // those of each block
  A* partial_out;  // of the parts of long rows: (chunks, 2, columns, F)
  A* grad;         // edge_gradient
  bool accumulate;
  int blocks;
};

// ---------------------------------------------------------------------------------------------- threads

// Sizes are powers of two. Everything follows from the number of the thread, so that it need not stay in registers.
struct Group {
  int lanes, size;

  __device__ __forceinline__ Group(int lanes_, int teams) : lanes(lanes_), size(lanes_ * teams) {}
  __device__ __forceinline__ int index() const { return int(threadIdx.x) / size; }  // of this group in its block
  __device__ __forceinline__ int lane() const { return int(threadIdx.x) & (lanes - 1); }
  __device__ __forceinline__ int team() const { return (int(threadIdx.x) & (size - 1)) / lanes; }
  __device__ __forceinline__ uint32_t mask() const {  // the group's lanes of the warp
    return size == 32 ? ~0u : ((1u << size) - 1) << (int(threadIdx.x) & 31 & ~(size - 1));
  }
};

// The sum over the threads of a group that differ in the bits [from, to) of their number, which are powers of two.
template <class A> __device__ __forceinline__ A sum_over(uint32_t mask, A value, int from, int to) {
#pragma unroll 1
  for (int bit = from; bit < to; bit <<= 1) value += __shfl_xor_sync(mask, value, bit);
  return value;
}

// ---------------------------------------------------------------------------------------------- weights

// to[(i * ranks + p) * width + c] = w of relation i from p to column c, zero beyond the last rank and column; the last
// relation is the sum of the others by their self-loops.
template <class A, class I>
__device__ void pack(const Pass<A, I>& pass, A* to, int thread, int threads) {
#pragma unroll 1
  for (int k = thread; k < pass.packed; k += threads) {
    const int c = k % pass.width, p = k / pass.width % pass.ranks, i = k / pass.width / pass.ranks;
    A value = 0;
    if (c < pass.columns && p < pass.rank) {
      const Column& column = pass.column[c];
      const A* w = static_cast<const A*>(column.w) + p * column.near;
      if (i < pass.relations) value = w[i * column.step];
      else if (pass.loop)
#pragma unroll 1
        for (int r = 0; r < pass.relations; ++r) value += pass.loop[r] * w[r * column.step];
    }
    to[k] = value;
  }
}

template <class A, class I>
__global__ void __launch_bounds__(kThreads) pack_weights(const __grid_constant__ Pass<A, I> pass) {
  pack(pass, const_cast<A*>(pass.w), int(blockIdx.x * kThreads + threadIdx.x), int(gridDim.x * kThreads));
}

// ---------------------------------------------------------------------------------------------- long rows

// The edges are cut into chunks of kSplit. Each can meet two long rows: one that began earlier (slot 0), and one that
// begins in it (slot 1) and, being long, goes on into the next.
__host__ __device__ constexpr int64_t chunks_of(int64_t edges) {
  return edges > kSplit ? (edges + kSplit - 1) / kSplit : 0;
}

template <class I> struct LongRows {
  const I* row_ptr;
  const I* seg_ptr;
  int64_t nodes, edges;
  Part<I>* parts;  // (chunks, 2)

  __device__ __forceinline__ int64_t first_edge(int64_t row) const { return seg_ptr[row_ptr[row]]; }

  // The row of an edge, found by a whole warp, which looks at 32 rows at a time.
  __device__ __forceinline__ int64_t row_of(int64_t edge) const {
    int64_t low = 0, high = nodes;  // first_edge(low) <= edge < first_edge(high)
    while (high - low > 1) {
      const int64_t step = (high - low + 31) / 32, probe = low + (threadIdx.x % 32 + 1) * step;
      low += __popc(__ballot_sync(~0u, probe < high && first_edge(probe) <= edge)) * step;
      high = smaller(high, low + step);
    }
    return low;
  }

  __device__ __forceinline__ Part<I> find(int64_t chunk, bool second) const {
    const int64_t begin = chunk * kSplit, end = begin + kSplit, inside = second ? end : begin;
    if (inside >= edges) return {};
    const int64_t row = row_of(inside), from = first_edge(row), to = first_edge(row + 1);
    const bool here = second ? begin <= from && from < end : from < begin;
    if (to - from <= kSplit || !here) return {};
    return {I(row), I(larger(begin, from)), I(smaller(end, to)), I(second)};
  }
};

template <class I>
__global__ void __launch_bounds__(kThreads) find_parts(const __grid_constant__ LongRows<I> rows) {
  constexpr int kWarps = kThreads / 32;
  for (int64_t k = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32; k < 2 * chunks_of(rows.edges);
       k += int64_t(gridDim.x) * kWarps) {
    const Part<I> part = rows.find(k / 2, k % 2);
    if (threadIdx.x % 32 == 0) rows.parts[k] = part;
  }
}

// ---------------------------------------------------------------------------------------------- units of work

// The parts of long rows, which take the longest, then the rows. A row that is not long is one part, a long one is
// none.
template <class A, class I> __device__ __forceinline__ bool is_part(const Pass<A, I>& pass, Unit<I> unit) {
  return unit < pass.units - Unit<I>(pass.nodes);
}

template <class A, class I> __device__ __forceinline__ Part<I> part_of(const Pass<A, I>& pass, Unit<I> unit) {
  if (is_part(pass, unit)) return pass.parts[unit];
  const I row = I(unit - (pass.units - Unit<I>(pass.nodes)));
  const I begin = pass.seg_ptr[pass.row_ptr[row]], end = pass.seg_ptr[pass.row_ptr[row + 1]];
  const bool whole = end - begin <= kSplit;
  return {row, begin, whole ? end : begin, whole};
}

// ---------------------------------------------------------------------------------------------- reading rows

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
  __device__ __forceinline__ void read(const Pass<A, I>& pass, const char* first, I node, int p0) {
    const T* from = reinterpret_cast<const T*>(first + uint64_t(Unit<I>(node)) * pass.pitch);
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (p == 0 || p0 + p < pass.rank) rank[p] = load<V>(from + uint32_t(p * pass.features));
  }
};

// So many edges are in flight at a time that a thread reads two vectors.
template <int P> constexpr int kUnroll = 2 / P;

}  // namespace tensus::cuda
