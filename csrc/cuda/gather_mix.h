// Gather, then mix: a group takes a row, gathers the sum of each of its segments into registers, and mixes it at once
// into the columns, which stay in registers until the row is done. No sum is ever written to memory.
#pragma once
#include "pass.h"

namespace tensus::cuda {

// Shared memory holds the columns, for the teams of a warp look at different ones, then the packed weights and the sums
// of dw, unless these are too many. Where they are is worked out again at every use: registers are scarce.
__device__ __forceinline__ Column* shared_columns() {
  TENSUS_SHARED(shared);
  return reinterpret_cast<Column*>(shared);
}

template <class A, class I> __device__ __forceinline__ A* packed_weights(const Pass<A, I>& pass) {
  return pass.w ? const_cast<A*>(pass.w) : reinterpret_cast<A*>(shared_columns() + kMaxColumns);
}

// The sums of all groups of this block are neighbours.
template <class A, class I> __device__ __forceinline__ A* block_gradients(const Pass<A, I>& pass) {
  if (pass.dw) return pass.dw + int64_t(blockIdx.x) * pass.groups * pass.packed;
  return reinterpret_cast<A*>(shared_columns() + kMaxColumns) + (pass.w ? 0 : pass.packed);
}

// What a thread holds of a row: V features of Q columns, while it gathers P ranks at a time.
template <class T, class I, int P, int Q, int V, bool kGradient> struct RowMix {
  using A = Sum<T>;

  const Pass<A, I>& pass;
  Group group;
  I row;
  int f;  // the first of its features; a thread beyond the last one only takes part in the exchanges
  A out[Q][V];

  __device__ __forceinline__ bool active() const { return f < pass.features; }
  __device__ __forceinline__ int first_column() const { return group.team() * Q; }
  __device__ __forceinline__ const Column& column(int c) const { return shared_columns()[c]; }
  __device__ __forceinline__ int at(int relation, int p) const {
    return (relation * pass.ranks + p) * pass.width + first_column();
  }
  __device__ __forceinline__ Vec<A, Q> weights(int relation, int p) const {
    return load<Q>(packed_weights(pass) + at(relation, p));
  }
  __device__ __forceinline__ A& gradient(int relation, int p, int q) const {
    return block_gradients(pass)[group.index() * pass.packed + at(relation, p) + q];
  }

  // sum[p, v] = the sum over some edges of value * x[col, p0 + p, f + v]; every team has the whole sum.
  __device__ __forceinline__ void gather(I begin, int count, int p0, A (&sum)[P][V]) const {
    constexpr int U = kUnroll<P>;
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[p][v] = 0;
    const char* const first = first_node<T>(pass, p0, f);
#pragma unroll 1
    for (int e = group.team(); e < count; e += U * pass.teams) {
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
    for (int bit = pass.lanes; bit < pass.lanes * pass.teams; bit <<= 1)  // over the teams
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[p][v] += __shfl_xor_sync(group.mask(), sum[p][v], bit);
  }

  __device__ __forceinline__ void mix(const A (&sum)[V], const Vec<A, Q>& weights) {
#pragma unroll
    for (int q = 0; q < Q; ++q)
#pragma unroll
      for (int v = 0; v < V; ++v) out[q][v] += weights.at[q] * sum[v];
  }

  // add(p, q, product) is called for every product <sum[p], other[q]> over all features, each in one of the lanes.
  template <class Add> __device__ __forceinline__ void products(const A (&sum)[P][V], const Add& add) const {
#pragma unroll 1  // unrolled, it spills registers
    for (int q = 0; q < Q; ++q) {
      const int c = first_column() + q;
      Vec<T, V> other{};
      if (active() && c < pass.columns && column(c).other)
        other = load<V>(static_cast<const T*>(column(c).other) + int64_t(row) * column(c).stride + f);
      A dot[P];
#pragma unroll
      for (int p = 0; p < P; ++p) {
        dot[p] = 0;
#pragma unroll
        for (int v = 0; v < V; ++v) dot[p] += sum[p][v] * widen(other.at[v]);
      }
      // Two lanes share their products: each keeps half of them, so that P products cost P - 1 exchanges, not P log P.
#pragma unroll
      for (int half = P / 2; half > 0; half /= 2) {
        const bool upper = group.lane() & half;
#pragma unroll
        for (int p = 0; p < half; ++p) {
          const A given = upper ? dot[p] : dot[p + half], kept = upper ? dot[p + half] : dot[p];
          dot[p] = kept + __shfl_xor_sync(group.mask(), given, half);
        }
      }
      const A product = sum_over(group.mask(), dot[0], P, pass.lanes);
      if (group.lane() < P) add(group.lane(), q, product);
    }
  }

  __device__ __forceinline__ void segment(I s, I begin, int count, int p0) {
    A sum[P][V];
    gather(begin, count, p0, sum);
    const int relation = pass.seg_rel[s];
    const A scale = pass.seg_val ? pass.seg_val[s] : A(1);
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[p][v] *= scale;
#pragma unroll
    for (int p = 0; p < P; ++p) mix(sum[p], weights(relation, p0 + p));
    if constexpr (kGradient) products(sum, [&](int p, int q, A product) { gradient(relation, p0 + p, q) += product; });
  }

  // The diagonals of all relations: one matrix, corrected for the pairs whose self-loop has a weight of its own.
  __device__ __forceinline__ void self(int p0) {
    A sum[P][V];
    Rows<T, P, V> rows;
    if (active()) rows.read(pass, first_node<T>(pass, p0, f), row, p0);
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[p][v] = widen(rows.rank[p].at[v]);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      Vec<A, Q> all = weights(pass.relations, p0 + p);
      each_correction([&](int relation, A weight) {
        const Vec<A, Q> more = weights(relation, p0 + p);
#pragma unroll
        for (int q = 0; q < Q; ++q) all.at[q] += weight * more.at[q];
      });
      mix(sum[p], all);
    }
    if constexpr (kGradient)
      products(sum, [&](int p, int q, A product) {
        gradient(pass.relations, p0 + p, q) += product;
        each_correction([&](int relation, A weight) { gradient(relation, p0 + p, q) += weight * product; });
      });
  }

  template <class Correct> __device__ __forceinline__ void each_correction(const Correct& correct) const {
    if (!pass.seg_loop) return;
#pragma unroll 1
    for (I s = pass.pair_ptr[row]; s < pass.pair_ptr[row + 1]; ++s)
      correct(pass.pair_rel[s], pass.seg_loop[s] - pass.loop[pass.pair_rel[s]]);
  }

  __device__ __forceinline__ void run(const Part<I>& part, bool looped) {
#pragma unroll
    for (int q = 0; q < Q; ++q)
#pragma unroll
      for (int v = 0; v < V; ++v) out[q][v] = 0;
#pragma unroll 1
    for (int p0 = 0; p0 < pass.rank; p0 += P) {
      const I last = pass.row_ptr[row + 1];
#pragma unroll 1
      for (I s = pass.row_ptr[row]; s < last; ++s) {
        const I begin = larger(pass.seg_ptr[s], part.begin), end = smaller(pass.seg_ptr[s + 1], part.end);
        if (begin < end) segment(s, begin, int(end - begin), p0);
      }
      if (looped && part.first) self(p0);
    }
  }

  __device__ __forceinline__ void write(A* partial) const {
    if (!active()) return;
#pragma unroll
    for (int q = 0; q < Q; ++q) {
      const int c = first_column() + q;
      if (c >= pass.columns || !column(c).out) continue;
      if (partial) {
        Vec<A, V> sums;
#pragma unroll
        for (int v = 0; v < V; ++v) sums.at[v] = out[q][v];
        store<V>(partial + int64_t(c) * pass.features + f, sums);
      } else {
        T* to = static_cast<T*>(column(c).out) + int64_t(row) * column(c).stride + f;
        Vec<T, V> sums = column(c).accumulate ? load<V>(to) : Vec<T, V>{};
#pragma unroll
        for (int v = 0; v < V; ++v) narrow(widen(sums.at[v]) + out[q][v], sums.at[v]);
        store<V>(to, sums);
      }
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
  return __any_sync(~0u, any);
}

template <class T, class I, int P, int Q, int V, bool kGradient>
__global__ void __launch_bounds__(kThreads, kBlocks) gather_mix(const __grid_constant__ Pass<Sum<T>, I> pass) {
  using A = Sum<T>;
  const Group group(pass.lanes, pass.teams);
  const bool looped = pass.seg_loop || any_loop(pass.loop, pass.relations);
  if (int(threadIdx.x) < pass.columns) shared_columns()[threadIdx.x] = pass.column[threadIdx.x];
  if (!pass.w) pack(pass, packed_weights(pass), int(threadIdx.x), kThreads);
  if constexpr (kGradient)
#pragma unroll 1
    for (int k = int(threadIdx.x); k < pass.groups * pass.packed; k += kThreads) block_gradients(pass)[k] = 0;
  __syncthreads();

  RowMix<T, I, P, Q, V, kGradient> mix{pass, group, 0, 0, {}};
#pragma unroll 1
  for (Unit<I> unit = Unit<I>(blockIdx.x) * pass.groups + group.index(); unit < pass.units;
       unit += gridDim.x * pass.groups) {
    const Part<I> part = part_of(pass, unit);
    if (part.begin == part.end && !part.first) continue;
    mix.row = part.row;
#pragma unroll 1
    for (int tile = 0; tile < pass.features; tile += pass.lanes * V) {
      mix.f = tile + group.lane() * V;
      mix.run(part, looped);
      mix.write(is_part(pass, unit) ? partial_of(pass, unit) : nullptr);
    }
  }

  if constexpr (kGradient) {
    __syncthreads();
#pragma unroll 1
    for (int k = int(threadIdx.x); k < pass.packed; k += kThreads) {
      A sum = 0;
#pragma unroll 1
      for (int g = 0; g < pass.groups; ++g) sum += block_gradients(pass)[g * pass.packed + k];
      pass.partial_dw[int64_t(blockIdx.x) * pass.packed + k] = sum;
    }
  }
}

// The sum of term(0), ..., term(count - 1), always in the same order; several loads are on their way at a time.
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

// Adds up the parts of the long rows. A long row belongs to the chunk in which it begins.
template <class T, class I>
__global__ void __launch_bounds__(kThreads) add_parts(const __grid_constant__ Pass<Sum<T>, I> pass) {
  using A = Sum<T>;
  for (int64_t chunk = blockIdx.x; chunk < chunks_of(pass.edges); chunk += gridDim.x) {
    if (!pass.parts[2 * chunk + 1].first) continue;
    const int64_t row = pass.parts[2 * chunk + 1].row;
    const I end = pass.seg_ptr[pass.row_ptr[row + 1]];
    for (int k = int(threadIdx.x); k < pass.columns * pass.features; k += kThreads) {
      const Column& column = pass.column[k / pass.features];
      if (!column.out) continue;
      const int64_t others = (end - 1) / kSplit - chunk;
      const A sum = partial_of(pass, 2 * chunk + 1)[k] +
                    sum_of<A>(others, [&](int64_t n) { return partial_of(pass, 2 * (chunk + 1 + n))[k]; });
      T& to = static_cast<T*>(column.out)[row * column.stride + k % pass.features];
      narrow(column.accumulate ? widen(to) + sum : sum, to);
    }
  }
}

// dw: the partial sums of all blocks, in a fixed order. Each warp takes its share of the blocks for 32 neighbours.
constexpr int kSlices = 16;

template <class A, class I>
__global__ void __launch_bounds__(32 * kSlices) add_gradients(const __grid_constant__ Pass<A, I> pass) {
  TENSUS_SHARED(shared);
  double* const sums = reinterpret_cast<double*>(shared);
  const int lane = int(threadIdx.x) % 32, slice = int(threadIdx.x) / 32;
  const int k = int(blockIdx.x) * 32 + lane;
  const int c = k % pass.width, p = k / pass.width % pass.ranks, i = k / pass.width / pass.ranks;
  const bool wanted = i < pass.relations && p < pass.rank && c < pass.columns && pass.column[c].dw;
  double sum = 0, self = 0;
  if (wanted) {
    const int64_t mine = (pass.blocks - slice + kSlices - 1) / kSlices;
    const auto partial = [&](int64_t n, int at) { return pass.partial_dw[(slice + n * kSlices) * pass.packed + at]; };
    sum = sum_of<double>(mine, [&](int64_t n) { return partial(n, k); });
    const int loop = (pass.relations * pass.ranks + p) * pass.width + c;
    if (pass.loop) self = sum_of<double>(mine, [&](int64_t n) { return partial(n, loop); });
  }
  if (wanted && pass.loop) sum += pass.loop[i] * self;
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (slice > 0 || !wanted) return;
#pragma unroll 1
  for (int other = 1; other < kSlices; ++other) sum += sums[other * 32 + lane];
  static_cast<A*>(pass.column[c].dw)[i * pass.column[c].step + p * pass.column[c].near] = A(sum);
}

}  // namespace tensus::cuda
