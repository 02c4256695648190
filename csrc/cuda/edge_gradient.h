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

  // grad[begin + e] += <x[col], mixed> over P ranks and V features of every lane.
  const auto products = [&](I begin, int count, int p0, int f, const A(&mixed)[P][V], bool fresh) {
    constexpr int U = 2 / P;
#pragma unroll 1
    for (int first = 0; first < count; first += U * pass.teams) {  // all threads of the warp take every turn
      Rows<T, P, V> rows[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int e = first + u * pass.teams + team_of(pass);
        if (e >= count || f >= pass.end) continue;
        const I row = row_of(pass.row, pass.col[begin + e]);
        if (row >= 0) rows[u].read(pass, first_node<T>(pass, p0, f), row, p0);
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

  const auto segment = [&](I node, int relation, I begin, int count) {
#pragma unroll 1
    for (int tile = pass.begin; tile == 0 || tile < pass.end; tile += pass.lanes * V) {  // once at least: zero features
      const int f = tile + lane_of(pass) * V;
      const int own = group_of(pass, f) * pass.group_size;
#pragma unroll 1
      for (int p0 = 0; p0 < pass.rank; p0 += P) {
        A mixed[P][V] = {};
#pragma unroll 1
        for (int c = 0; c < pass.columns && f < pass.end; ++c) {
          const T* from = place<const T>(pass.column[c].other, pass.column[c], node, f);
          if (!from) continue;
          const Vec<T, V> other = load<V>(from);
#pragma unroll
          for (int p = 0; p < P; ++p) {
            const int place = own + (relation * pass.ranks + p0 + p) * pass.width + c;
            const A weight = pass.w ? read_only(pass.w + place) : shared_w[place];
#pragma unroll
            for (int v = 0; v < V; ++v) mixed[p][v] += weight * widen(other.at[v]);
          }
        }
        products(begin, count, p0, f, mixed, !pass.accumulate && tile == pass.begin && p0 == 0);
      }
    }
  };

#pragma unroll 1
  for (Unit<I> unit = Unit<I>(blockIdx.x) * kWarps + warp_index(); unit < pass.units; unit += gridDim.x * kWarps) {
    if (!has_work(pass, unit)) continue;
    const I node = node_of(pass, unit);
#pragma unroll 1
    for (I s = pass.row_ptr[node]; s < pass.row_ptr[node + 1]; ++s) {
      const Edges<I> edges = edges_of(pass, unit, s);
      if (edges.begin < edges.end && uses(pass, pass.seg_rel[s]))
        segment(node, pass.seg_rel[s], edges.begin, int(edges.end - edges.begin));
    }
  }
}

}  // namespace tensus::cuda
