// The gradient of the edge values: for a segment, the columns are mixed back into P ranks in registers, and each edge
// is an inner product with the row at its other end.
#pragma once
#include "pass.h"

namespace tensus::cuda {

template <class T, class I, int P, int V>
__global__ void __launch_bounds__(kThreads, kBlocks) edge_gradient(const __grid_constant__ Pass<Sum<T>, I> pass) {
  using A = Sum<T>;
  TENSUS_SHARED(shared);
  A* const shared_w = reinterpret_cast<A*>(shared);
  const Group group(pass.lanes, pass.teams);
  if (!pass.w) pack(pass, shared_w, int(threadIdx.x), kThreads);
  __syncthreads();
  const A* const w = pass.w ? pass.w : shared_w;

  // grad[begin + e] += <x[col], mixed> over P ranks and V features of every lane.
  const auto edges = [&](I begin, int count, int p0, int f, const A(&mixed)[P][V], bool fresh) {
    constexpr int U = kUnroll<P>;
#pragma unroll 1
    for (int first = 0; first < count; first += U * pass.teams) {  // all threads of the group take every turn
      Rows<T, P, V> rows[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int e = first + u * pass.teams + group.team();
        if (e < count && f < pass.features) rows[u].read(pass, first_node<T>(pass, p0, f), pass.col[begin + e], p0);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int e = first + u * pass.teams + group.team();
        A dot = 0;
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
          for (int v = 0; v < V; ++v) dot += mixed[p][v] * widen(rows[u].rank[p].at[v]);
        dot = sum_over(group.mask(), dot, 1, pass.lanes);
        if (e < count && group.lane() == 0) pass.grad[begin + e] = fresh ? dot : pass.grad[begin + e] + dot;
      }
    }
  };

  const auto segment = [&](int64_t row, int relation, I begin, int count) {
#pragma unroll 1
    for (int tile = 0; tile == 0 || tile < pass.features; tile += pass.lanes * V) {  // once at least: zero features
      const int f = tile + group.lane() * V;
#pragma unroll 1
      for (int p0 = 0; p0 < pass.rank; p0 += P) {
        A mixed[P][V] = {};
#pragma unroll 1
        for (int c = 0; c < pass.columns && f < pass.features; ++c) {
          const T* from = static_cast<const T*>(pass.column[c].other) + row * pass.column[c].stride + f;
          const Vec<T, V> other = load<V>(from);
#pragma unroll
          for (int p = 0; p < P; ++p) {
            const A weight = w[(relation * pass.ranks + p0 + p) * pass.width + c];
#pragma unroll
            for (int v = 0; v < V; ++v) mixed[p][v] += weight * widen(other.at[v]);
          }
        }
        edges(begin, count, p0, f, mixed, !pass.accumulate && tile == 0 && p0 == 0);
      }
    }
  };

#pragma unroll 1
  for (Unit<I> unit = Unit<I>(blockIdx.x) * pass.groups + group.index(); unit < pass.units;
       unit += gridDim.x * pass.groups) {
    const Part<I> part = part_of(pass, unit);
    if (part.begin == part.end) continue;
    const I last = pass.row_ptr[part.row + 1];
#pragma unroll 1
    for (I s = pass.row_ptr[part.row]; s < last; ++s) {
      const I begin = larger(pass.seg_ptr[s], part.begin), end = smaller(pass.seg_ptr[s + 1], part.end);
      if (begin < end) segment(part.row, pass.seg_rel[s], begin, int(end - begin));
    }
  }
}

}  // namespace tensus::cuda
