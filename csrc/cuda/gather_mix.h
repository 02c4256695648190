// Gather, then mix: a warp takes a row, gathers the sum of each of its segments into registers, and mixes it at once
// into the columns, which stay in registers until the row is done. No sum is ever written to memory.
#pragma once
#include "pass.h"

namespace tensus::cuda {

constexpr int kPair = 2;  // columns whose products are taken together
constexpr int kFinishThreads = 512;

// Shared memory holds the columns, for the teams of a warp look at different ones, and whether there are self-loops,
// then the packed weights and the sums of dw, unless these are too many. Where they are is worked out again at every
// use: registers are scarce.
struct Header {
  Column column[kMaxColumns];
  alignas(16) bool looped;
};

__device__ __forceinline__ Header& header() {
  TENSUS_SHARED(shared);
  return *reinterpret_cast<Header*>(shared);
}

template <class A> __device__ __forceinline__ A* after_header() { return reinterpret_cast<A*>(&header() + 1); }

template <class A, class I> __device__ __forceinline__ A* packed_weights(const Pass<A, I>& pass) {
  return pass.w ? const_cast<A*>(pass.w) : after_header<A>();
}

// The sums of all warps of this block are neighbours.
template <class A, class I> __device__ __forceinline__ A* block_gradients(const Pass<A, I>& pass) {
  if (pass.dw) return pass.dw + int64_t(blockIdx.x) * kWarps * pass.packed;
  return after_header<A>() + (pass.w ? 0 : pass.packed);
}

// What a thread holds of a row: V features of Q columns, while it gathers P ranks at a time.
template <class T, class I, int P, int Q, int V, bool kGradient> struct RowMix {
  using A = Sum<T>;

  const Pass<A, I>& pass;
  I row;
  int f;  // the first of its features; a thread beyond the last one only takes part in the exchanges
  A out[Q][V];

  __device__ __forceinline__ bool active() const { return f < pass.features; }
  __device__ __forceinline__ bool mixes() const { return team_of(pass) < pass.mixers; }
  __device__ __forceinline__ int first_column() const { return (team_of(pass) & (pass.mixers - 1)) * Q; }
  __device__ __forceinline__ const Column& column(int c) const { return header().column[c]; }
  __device__ __forceinline__ int at(int relation, int p) const {
    return (relation * pass.ranks + p) * pass.width + first_column();
  }
  __device__ __forceinline__ Vec<A, Q> weights(int relation, int p) const {
    return load<Q>(packed_weights(pass) + at(relation, p));
  }

  // sum[p, v] = the sum over some edges of value * x[col, p0 + p, f + v]; every team has the whole sum.
  __device__ __forceinline__ void gather(I begin, int count, int p0, A (&sum)[P][V]) const {
    constexpr int U = (kGradient ? 2 : 4) / P;  // edges in flight, as far as registers go
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[p][v] = 0;
    const char* const first = first_node<T>(pass, p0, f);
#pragma unroll 1
    for (int e = team_of(pass); e < count; e += U * pass.teams) {
      Rows<T, P, V> rows[U];
      A value[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int mine = e + u * pass.teams;
        value[u] = 1;
        if (mine >= count || !active()) continue;
        rows[u].read(pass, first, pass.col[begin + mine], p0);
        if (pass.edge_val) value[u] = pass.edge_val[begin + mine];
      }
#pragma unroll
      for (int u = 0; u < U; ++u)
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
          for (int v = 0; v < V; ++v) sum[p][v] += value[u] * widen(rows[u].rank[p].at[v]);
    }
#pragma unroll 1
    for (int bit = pass.lanes; bit < 32; bit <<= 1)  // over the teams
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[p][v] += __shfl_xor_sync(kWarp, sum[p][v], bit);
  }

  __device__ __forceinline__ void mix(const A (&sum)[V], const Vec<A, Q>& weights) {
#pragma unroll
    for (int q = 0; q < Q; ++q)
#pragma unroll
      for (int v = 0; v < V; ++v) out[q][v] += weights.at[q] * sum[v];
  }

  // The products <sum[p], other[q]> over all features, of two columns at a time: lane p + P q of a team has that one,
  // and add(its place among the gradients, product) adds it.
  template <class Add> __device__ __forceinline__ void products(const A (&sum)[P][V], const Add& add) const {
#pragma unroll 1  // unrolled, it spills registers
    for (int q0 = 0; q0 < Q; q0 += kPair) {
      Vec<T, V> other[kPair];
#pragma unroll
      for (int q = 0; q < kPair; ++q) {
        const int c = first_column() + q0 + q;
        other[q] = Vec<T, V>{};
        if (active() && c < pass.columns && column(c).other)
          other[q] = load<V>(static_cast<const T*>(column(c).other) + int64_t(row) * column(c).stride + f);
      }
      A dot[P * kPair];
#pragma unroll
      for (int k = 0; k < P * kPair; ++k) {
        dot[k] = 0;
#pragma unroll
        for (int v = 0; v < V; ++v) dot[k] += sum[k % P][v] * widen(other[k / P].at[v]);
      }
      // Two lanes share their products: each keeps half of them, so that K products cost K - 1 exchanges, not K log K.
#pragma unroll
      for (int half = P * kPair / 2; half > 0; half /= 2) {
        const bool upper = lane_of(pass) & half;
#pragma unroll
        for (int k = 0; k < half; ++k) {
          const A given = upper ? dot[k] : dot[k + half], kept = upper ? dot[k + half] : dot[k];
          dot[k] = kept + __shfl_xor_sync(kWarp, given, half);
        }
      }
      const A product = sum_over(dot[0], P * kPair, pass.lanes);
      const int lane = lane_of(pass), p = lane % P, q = q0 + lane / P;
      if (mixes() && lane < P * kPair)
        add(block_gradients(pass) + warp_index() * pass.packed + p * pass.width + first_column() + q, product);
    }
  }

  __device__ __forceinline__ void segment(int relation, A scale, I begin, int count, int p0) {
    A sum[P][V];
    gather(begin, count, p0, sum);
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[p][v] *= scale;
#pragma unroll
    for (int p = 0; p < P; ++p) mix(sum[p], weights(relation, p0 + p));
    if constexpr (kGradient)
      products(sum, [&](A* to, A product) { to[(relation * pass.ranks + p0) * pass.width] += product; });
  }

  // The diagonals of all relations: one matrix, corrected for the pairs whose self-loop has a weight of its own.
  __device__ __forceinline__ void self(int p0) {
    A sum[P][V];
    Vec<A, Q> all[P];
#pragma unroll
    for (int p = 0; p < P; ++p) all[p] = weights(pass.relations, p0 + p);
    each_correction([&](int relation, A weight) {
#pragma unroll
      for (int p = 0; p < P; ++p) {
        const Vec<A, Q> more = weights(relation, p0 + p);
#pragma unroll
        for (int q = 0; q < Q; ++q) all[p].at[q] += weight * more.at[q];
      }
    });
    Rows<T, P, V> rows;
    if (active()) rows.read(pass, first_node<T>(pass, p0, f), row, p0);
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum[p][v] = widen(rows.rank[p].at[v]);
      mix(sum[p], all[p]);
    }
    if constexpr (kGradient)
      products(sum, [&](A* to, A product) {
        to[(pass.relations * pass.ranks + p0) * pass.width] += product;
        each_correction(
            [&](int relation, A weight) { to[(relation * pass.ranks + p0) * pass.width] += weight * product; });
      });
  }

  template <class Correct> __device__ __forceinline__ void each_correction(const Correct& correct) const {
    if (!pass.seg_loop) return;
    const I last = pass.pair_ptr[row + 1];
#pragma unroll 1
    for (I s = pass.pair_ptr[row]; s < last; ++s) {
      const int relation = pass.pair_rel[s];
      correct(relation, pass.seg_loop[s] - pass.loop[relation]);
    }
  }

  __device__ __forceinline__ void run(Unit<I> unit) {
#pragma unroll
    for (int q = 0; q < Q; ++q)
#pragma unroll
      for (int v = 0; v < V; ++v) out[q][v] = 0;
#pragma unroll 1
    for (int p0 = 0; p0 < (P == 1 ? 1 : pass.rank); p0 += P) {  // P = 1 is for rank 1 alone
#pragma unroll 1
      for (I s = pass.row_ptr[row]; s < pass.row_ptr[row + 1]; ++s) {
        const int relation = pass.seg_rel[s];
        const A scale = pass.seg_val ? pass.seg_val[s] : A(1);
        const Edges<I> edges = edges_of(pass, unit, s);
        if (edges.begin < edges.end && uses(pass, relation))
          segment(relation, scale, edges.begin, int(edges.end - edges.begin), p0);
      }
      if (header().looped && (!is_part(pass, unit) || pass.parts[unit].count > 0)) self(p0);
    }
  }

  __device__ __forceinline__ void write(A* partial) const {
    if (!active() || !mixes()) return;
    if (partial) {
#pragma unroll
      for (int q = 0; q < Q; ++q) {
        Vec<A, V> sums;
#pragma unroll
        for (int v = 0; v < V; ++v) sums.at[v] = out[q][v];
        const int c = first_column() + q;
        if (c < pass.columns) store<V>(partial + int64_t(c) * pass.features + f, sums);
      }
      return;
    }
    T* to[Q];
    Vec<T, V> sums[Q];
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      const int c = first_column() + q;
      sums[q] = Vec<T, V>{}, to[q] = nullptr;
      if (c >= pass.columns || !column(c).out) continue;
      to[q] = static_cast<T*>(column(c).out) + int64_t(row) * column(c).stride + f;
      if (column(c).accumulate) sums[q] = load<V>(to[q]);
    }
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      if (!to[q]) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) narrow(widen(sums[q].at[v]) + out[q][v], sums[q].at[v]);
      store<V>(to[q], sums[q]);
    }
  }
};

template <class A, class I> __device__ __forceinline__ A* partial_of(const Pass<A, I>& pass, int64_t part) {
  return pass.partial_out + part * pass.columns * pass.features;
}

template <class A> __device__ bool any_loop(const A* loop, int relations) {
  bool any = false;
#pragma unroll 1
  for (int i = int(threadIdx.x % 32); loop && i < relations; i += 32) any |= loop[i] != 0;
  return __any_sync(kWarp, any);
}

template <class T, class I, int P, int Q, int V, bool kGradient>
__global__ void __launch_bounds__(kThreads, kBlocks) gather_mix(const __grid_constant__ Pass<Sum<T>, I> pass) {
  using A = Sum<T>;
  const bool looped = pass.seg_loop || any_loop(pass.loop, pass.relations);
  if (threadIdx.x == 0) header().looped = looped;
  if (int(threadIdx.x) < pass.columns) header().column[threadIdx.x] = pass.column[threadIdx.x];
  if (!pass.w) pack(pass, packed_weights(pass), int(threadIdx.x), kThreads);
  if constexpr (kGradient)
#pragma unroll 1
    for (int k = int(threadIdx.x); k < kWarps * pass.packed; k += kThreads) block_gradients(pass)[k] = 0;
  __syncthreads();

  RowMix<T, I, P, Q, V, kGradient> mix{pass, 0, 0, {}};
#pragma unroll 1
  for (Unit<I> unit = Unit<I>(blockIdx.x) * kWarps + warp_index(); unit < pass.units; unit += gridDim.x * kWarps) {
    mix.row = row_of(pass, unit);
    if (mix.row < 0) continue;
#pragma unroll 1
    for (mix.f = lane_of(pass) * V; mix.f - lane_of(pass) * V < pass.features; mix.f += pass.lanes * V) {
      mix.run(unit);
      mix.write(is_part(pass, unit) ? partial_of(pass, unit) : nullptr);
    }
  }

  if constexpr (kGradient) {
    __syncthreads();
#pragma unroll 1
    for (int k = int(threadIdx.x); k < pass.packed; k += kThreads) {
      A sum = 0;
#pragma unroll
      for (int g = 0; g < kWarps; ++g) sum += block_gradients(pass)[g * pass.packed + k];
      pass.partial_dw[int64_t(blockIdx.x) * pass.packed + k] = sum;
    }
  }
}

// ---------------------------------------------------------------------------------------------- what is left to add up

// The sum of term(0), ..., term(count - 1), always in the same order; many loads are on their way at a time.
template <class S, class Term> __device__ __forceinline__ S sum_of(int64_t count, const Term& term) {
  constexpr int kBatch = 8;
  S sum[kBatch] = {};
#pragma unroll 1
  for (int64_t n = 0; n < count; n += kBatch) {
    decltype(term(n)) value[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) value[k] = n + k < count ? term(n + k) : 0;
#pragma unroll
    for (int k = 0; k < kBatch; ++k) sum[k] += S(value[k]);
  }
#pragma unroll
  for (int half = kBatch / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) sum[k] += sum[k + half];
  return sum[0];
}

// The parts of long rows: the block takes one part, and does something if it is the first of its row.
template <class T, class I> __device__ void add_parts(const Pass<Sum<T>, I>& pass, int64_t first) {
  using A = Sum<T>;
  const Part<I> part = pass.parts[first];
  if (part.count == 0) return;
#pragma unroll 1
  for (int k = int(threadIdx.x); k < pass.columns * pass.features; k += kFinishThreads) {
    const Column& column = pass.column[k / pass.features];
    if (!column.out) continue;
    const A sum = sum_of<A>(part.count, [&](int64_t n) { return partial_of(pass, first + n)[k]; });
    T& to = static_cast<T*>(column.out)[int64_t(part.row) * column.stride + k % pass.features];
    narrow(column.accumulate ? widen(to) + sum : sum, to);
  }
}

// dw: the partial sums of all blocks, in a fixed order. Each warp takes its share of them for 32 neighbours.
template <class A, class I> __device__ void add_gradients(const Pass<A, I>& pass, int first) {
  TENSUS_SHARED(shared);
  double* const sums = reinterpret_cast<double*>(shared);
  constexpr int kSlices = kFinishThreads / 32;
  const int lane = int(threadIdx.x) % 32, slice = warp_index(), k = first + lane;
  const int c = k % pass.width, p = k / pass.width % pass.ranks, i = k / pass.width / pass.ranks;
  const bool wanted = i < pass.relations && p < pass.rank && c < pass.columns && pass.column[c].dw;
  double sum = 0;
  if (wanted && uses(pass, i, c)) {
    const int64_t mine = (pass.blocks - slice + kSlices - 1) / kSlices;
    const auto partial = [&](int64_t n, int at) { return pass.partial_dw[(slice + n * kSlices) * pass.packed + at]; };
    sum = sum_of<double>(mine, [&](int64_t n) { return partial(n, k); });
    const int loops = (pass.relations * pass.ranks + p) * pass.width + c;  // of all relations
    if (pass.loop) sum += pass.loop[i] * sum_of<double>(mine, [&](int64_t n) { return partial(n, loops); });
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (slice > 0 || !wanted) return;
  sum = sum_of<double>(kSlices, [&](int64_t other) { return sums[other * 32 + lane]; });
  static_cast<A*>(pass.column[c].dw)[i * pass.column[c].step + p * pass.column[c].near] = A(sum);
}

// The first blocks add up gradients, the others parts.
template <class T, class I>
__global__ void __launch_bounds__(kFinishThreads, 2) finish(const __grid_constant__ Pass<Sum<T>, I> pass) {
  const int sums = pass.partial_dw ? (pass.packed + 31) / 32 : 0;
  if (int(blockIdx.x) < sums) add_gradients(pass, int(blockIdx.x) * 32);
  else add_parts<T>(pass, int(blockIdx.x) - sums);
}

}  // namespace tensus::cuda
