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
  if (!pass.w) pack(pass, shared_w, int(threadIdx.x), kThreads);
  __syncthreads();
  const A* const w = pass.w ? pass.w : shared_w;

  // grad[begin + e] += <x[col], mixed> over P ranks and V features of every lane.
  const auto products = [&](I begin, int count, int p0, int f, const A(&mixed)[P][V], bool fresh) {
    constexpr int U = 2 / P;
#pragma unroll 1
    for (int first = 0; first < count; first += U * pass.teams) {  // all threads of the warp take every turn
      Rows<T, P, V> rows[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int e = first + u * pass.teams + team_of(pass);
        if (e < count && f < pass.features) rows[u].read(pass, first_node<T>(pass, p0, f), pass.col[begin + e], p0);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int e = first + u * pass.teams + team_of(pass);
        A dot = 0;
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
          for (int v = 0; v < V; ++v) dot += mixed[p][v] * widen(rows[u].rank[p].at[v]);
        dot = sum_over(dot, 1, pass.lanes);
        if (e < count && lane_of(pass) == 0) pass.grad[begin + e] = fresh ? dot : pass.grad[begin + e] + dot;
      }
    }
  };

  const auto segment = [&](int64_t row, int relation, I begin, int count) {
#pragma unroll 1
    for (int tile = 0; tile == 0 || tile < pass.features; tile += pass.lanes * V) {  // once at least: zero features
      const int f = tile + lane_of(pass) * V;
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
        products(begin, count, p0, f, mixed, !pass.accumulate && tile == 0 && p0 == 0);
      }
    }
  };

#pragma unroll 1
  for (Unit<I> unit = Unit<I>(blockIdx.x) * kWarps + warp_index(); unit < pass.units; unit += gridDim.x * kWarps) {
    const I row = row_of(pass, unit);
    if (row < 0) continue;
#pragma unroll 1
    for (I s = pass.row_ptr[row]; s < pass.row_ptr[row + 1]; ++s) {
      const Edges<I> edges = edges_of(pass, unit, s);
      if (edges.begin < edges.end && uses(pass, pass.seg_rel[s]))
        segment(row, pass.seg_rel[s], edges.begin, int(edges.end - edges.begin));
    }
  }
}

}  // namespace tensus::cuda
