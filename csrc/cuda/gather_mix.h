// Gather, then mix: a warp takes a row, gathers the sum of each of its segments into registers, and mixes it at once
// into the columns, which stay in registers until the row is done. No sum is ever written to memory.
#pragma once
#include "pass.h"

namespace tensus::cuda {

constexpr int kPair = 2;  // columns whose products are taken together
#ifndef TENSUS_FINISH_THREADS
#define TENSUS_FINISH_THREADS 512
#endif
constexpr int kFinishThreads = TENSUS_FINISH_THREADS;

// Shared memory holds the columns, for the teams of a warp look at different ones, and whether there are self-loops,
// then the packed weights and the sums of dw, unless these are too many. Where they are is worked out again at every
// use: registers are scarce.
struct Header {
  Column column[kMaxColumns];
  int group[kThreads];  // of the features of each thread, where there are several
  alignas(16) bool looped;
};

__device__ __forceinline__ Header& header() {
  TENSUS_SHARED(shared);
  return *reinterpret_cast<Header*>(shared);
}

template <class A> __device__ __forceinline__ A* after_header() { return reinterpret_cast<A*>(&header() + 1); }

// The sums of all warps of this block are neighbours.
template <class A, class I> __device__ __forceinline__ A* block_gradients(const Pass<A, I>& pass) {
  if (pass.dw) return pass.dw + int64_t(blockIdx.x) * kWarps * pass.packed;
  return after_header<A>() + (pass.w ? 0 : pass.packed);
}

// What a thread holds of a row: V features of Q columns, while it gathers P ranks at a time.
template <class T, class I, int P, int Q, int V, bool kGradient> struct RowMix {
  using A = Sum<T>;

  const Pass<A, I>& pass;
  I node;
  int f;  // the first of its features; a thread beyond the last one only takes part in the exchanges
  A out[Q][V];

  __device__ __forceinline__ bool active() const { return f < pass.end; }
  __device__ __forceinline__ int group() const { return pass.groups > 1 ? header().group[threadIdx.x] : 0; }
  __device__ __forceinline__ bool mixes() const { return team_of(pass) < pass.mixers; }
  __device__ __forceinline__ int first_column() const { return (team_of(pass) & (pass.mixers - 1)) * Q; }
  __device__ __forceinline__ const Column& column(int c) const { return header().column[c]; }
  __device__ __forceinline__ int at(int relation, int p) const {
    return group() * pass.group_size + (relation * pass.ranks + p) * pass.width + first_column();
  }

  // Two ranks and the gradient have no register left to ask what the others ask.
  static constexpr bool kAsks = P == 1 || !kGradient;

  // Where the weights are: without asking, generic loads serve both.
  __device__ __forceinline__ Vec<A, Q> weights(int relation, int p) const {
    if constexpr (!kAsks) return load<Q>((pass.w ? pass.w : after_header<A>()) + at(relation, p));
    else if (pass.w) return read_only(reinterpret_cast<const Vec<A, Q>*>(pass.w + at(relation, p)));
    else return load<Q>(after_header<A>() + at(relation, p));
  }

  // Whether every team reads a single edge, so that nothing is left to add up over the teams.
  static __device__ __forceinline__ bool is_single(int count) { return kAsks && count == 1; }

  // sum[p, v] = the sum over some edges of value * x[col, p0 + p, f + v]; every team has the whole sum.
  __device__ __forceinline__ void gather(I begin, int count, int p0, A (&sum)[P][V]) const {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[p][v] = 0;
    pass.row ? add_edges<true>(begin, count, p0, sum) : add_edges<false>(begin, count, p0, sum);
    if (is_single(count)) return;
#pragma unroll 1
    for (int bit = pass.lanes; bit < 32; bit <<= 1)  // over the teams
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[p][v] += __shfl_xor_sync(kWarp, sum[p][v], bit);
  }

  // This team's share of the edges; with kMapped, x may lack some of their nodes.
  template <bool kMapped>
  __device__ __forceinline__ void add_edges(I begin, int count, int p0, A (&sum)[P][V]) const {
    constexpr int U = (kGradient ? 2 : Q) / P;  // edges in flight, as far as registers go
    const char* const first = first_node<T>(pass, p0, f);
#pragma unroll 1
    for (int e = is_single(count) ? 0 : team_of(pass); e < count; e += U * pass.teams) {
      I row[U];
      A value[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {  // all indices, then all rows: one wait for each
        const int mine = e + u * pass.teams;
        row[u] = -1, value[u] = 1;
        if (mine >= count || !active()) continue;
        row[u] = pass.col[begin + mine];
        if (pass.edge_val) value[u] = pass.edge_val[begin + mine];
      }
      Rows<T, P, V> rows[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if constexpr (kMapped)
          if (row[u] >= 0) row[u] = row_of(pass.row, row[u]);
        if (row[u] >= 0) rows[u].read(pass, first, row[u], p0);
        else value[u] = 0;  // even infinity: x lacks the node
      }
#pragma unroll
      for (int u = 0; u < U; ++u)
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
          for (int v = 0; v < V; ++v) sum[p][v] += value[u] * widen(rows[u].rank[p].at[v]);
    }
  }

  __device__ __forceinline__ void mix(const A (&sum)[V], const Vec<A, Q>& weights) {
#pragma unroll
    for (int q = 0; q < Q; ++q)
#pragma unroll
      for (int v = 0; v < V; ++v) out[q][v] += weights.at[q] * sum[v];
  }

  // The products <sum[p], other[q]> over the features of a group, of two columns at a time; add(their place among the
  // gradients of relation 0 and rank 0, product) adds each.
  template <class Add> __device__ __forceinline__ void products(const A (&sum)[P][V], const Add& add) const {
#pragma unroll 1  // unrolled, it spills registers
    for (int q0 = 0; q0 < Q; q0 += kPair) {
      Vec<T, V> other[kPair];
#pragma unroll
      for (int q = 0; q < kPair; ++q) {
        const int c = first_column() + q0 + q;
        other[q] = Vec<T, V>{};
        if (!active() || c >= pass.columns || !column(c).other) continue;
        if (const T* from = place<const T>(column(c).other, column(c), fresh(node), f)) other[q] = load<V>(from);
      }
      A dot[P * kPair];
#pragma unroll
      for (int k = 0; k < P * kPair; ++k) {
        dot[k] = 0;
#pragma unroll
        for (int v = 0; v < V; ++v) dot[k] += sum[k % P][v] * widen(other[k / P].at[v]);
      }
      const auto add_to = [&](int p, int q, A product) {
        add(block_gradients(pass) + warp_index() * pass.packed + at(0, p) + q0 + q, product);
      };
      if (pass.groups > 1) {
#pragma unroll
        for (int k = 0; k < P * kPair; ++k) {
          const A product = sum_of_group(dot[k]);
          if (mixes() && first_of_group()) add_to(k % P, k / P, product);
        }
        continue;
      }
      // Lane p + P q of a team has the product of p and q. Two lanes share their products: each keeps half of them, so
      // that K products cost K - 1 exchanges, not K log K.
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
      const int lane = lane_of(pass);
      if (mixes() && lane < P * kPair) add_to(lane % P, lane / P, product);
    }
  }

  __device__ __forceinline__ bool first_of_group() const {
    return active() && (lane_of(pass) == 0 || (group() > 0 && f == pass.group_end[group() - 1]));
  }

  // Lanes of a group are neighbours: the first one in its team gets the sum over all of them.
  __device__ __forceinline__ A sum_of_group(A value) const {
    const int left = smaller(pass.lanes - lane_of(pass), (pass.group_end[group()] - f + V - 1) / V);
#pragma unroll 1
    for (int step = 1; step < pass.lanes; step <<= 1) {
      const A other = __shfl_down_sync(kWarp, value, step);
      if (step < left) value += other;
    }
    return value;
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
    const I row = row_of(pass.row, node);
    if (active() && row >= 0) rows.read(pass, first_node<T>(pass, p0, f), row, p0);
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
    const I last = pass.pair_ptr[node + 1];
#pragma unroll 1
    for (I s = pass.pair_ptr[node]; s < last; ++s) {
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
      for (I s = pass.row_ptr[node]; s < pass.row_ptr[fresh(node) + 1]; ++s) {
        const int relation = pass.seg_rel[s];
        const A scale = pass.seg_val ? pass.seg_val[s] : A(1);
        const Edges<I> edges = edges_of(pass, unit, s);
        if (edges.begin < edges.end && uses(pass, relation))
          segment(relation, scale, edges.begin, int(edges.end - edges.begin), p0);
      }
      if (header().looped && begins_row(pass, unit, node)) self(p0);
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
      to[q] = place<T>(column(c).out, column(c), fresh(node), f);
      if (to[q] && column(c).accumulate) sums[q] = load<V>(to[q]);
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
  if (!pass.w) pack(pass, after_header<A>(), int(threadIdx.x), kThreads);
  if constexpr (kGradient)
#pragma unroll 1
    for (int k = int(threadIdx.x); k < kWarps * pass.packed; k += kThreads) block_gradients(pass)[k] = 0;
  __syncthreads();

  RowMix<T, I, P, Q, V, kGradient> mix{pass, 0, 0, {}};
#pragma unroll 1
  for (Unit<I> unit = Unit<I>(blockIdx.x) * kWarps + warp_index(); unit < pass.units; unit += gridDim.x * kWarps) {
    if (!has_work(pass, unit)) continue;
    mix.node = node_of(pass, unit);
#pragma unroll 1
    for (mix.f = pass.begin + lane_of(pass) * V; mix.f - lane_of(pass) * V < pass.end; mix.f += pass.lanes * V) {
      if (pass.groups > 1) {
        header().group[threadIdx.x] = group_of(pass, mix.f);
        __syncwarp(kWarp);  // a group's gradient is added to by another lane in every tile of features
      }
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

// The sum of the vectors term(0), ..., term(count - 1) in this order; kBatch loads are on their way at a time.
constexpr int kBatch = 8;

template <class S, int V, class Term>
__device__ __forceinline__ Vec<S, V> sum_of(int count, const Term& term) {
  Vec<S, V> sum = {};
#pragma unroll 1
  for (int n = 0; n < count; n += kBatch) {
    decltype(term(n)) value[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) value[k] = n + k < count ? term(n + k) : decltype(term(n)){};
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += S(value[k].at[v]);
  }
  return sum;
}

// The parts of long rows: the block takes the next few of these, each with some of its threads.
template <class T, class I, int V> __device__ void add_parts(const Pass<Sum<T>, I>& pass, int64_t block) {
  using A = Sum<T>;
  const int64_t number = block * (kFinishThreads / pass.row_threads) + int(threadIdx.x) / pass.row_threads;
  if (number >= pass.long_count) return;
  const LongRow<I> row = pass.long_rows[number];
  const int vectors = (pass.end - pass.begin) / V;
#pragma unroll 1
  for (int k = int(threadIdx.x) % pass.row_threads; k < pass.columns * vectors; k += pass.row_threads) {
    const int c = k / vectors, f = pass.begin + k % vectors * V;
    const Column& column = pass.column[c];
    T* const to = column.out ? place<T>(column.out, column, row.row, f) : nullptr;
    if (!to) continue;
    Vec<T, V> sums = column.accumulate ? load<V>(to) : Vec<T, V>{};
    const A* const from = partial_of(pass, row.first) + int64_t(c) * pass.features + f;
    const Vec<A, V> more =
        sum_of<A, V>(int(row.count), [&](int64_t n) { return load<V>(from + n * pass.columns * pass.features); });
#pragma unroll
    for (int v = 0; v < V; ++v) narrow(widen(sums.at[v]) + more.at[v], sums.at[v]);
    store<V>(to, sums);
  }
}

// dw: the partial sums of all blocks, in a fixed order. Some neighbours make a block of threads, and the partial sums
// are shared out among its slices.
constexpr int kNeighbours = 8;  // 32 bytes of floats, the least that is worth a load

template <class A, class I> __device__ void add_gradients(const Pass<A, I>& pass, int first) {
  TENSUS_SHARED(shared);
  double* const sums = reinterpret_cast<double*>(shared);
  constexpr int kSlices = kFinishThreads / kNeighbours;
  const int lane = int(threadIdx.x) % kNeighbours, slice = int(threadIdx.x) / kNeighbours, k = first + lane;
  const auto wanted = [&](const Packed& at) {
    return k < pass.packed && at.relation < pass.relations && at.rank < pass.rank && at.column < pass.columns &&
           pass.column[at.column].dw;
  };
  double sum = 0;
  if (const Packed at(pass, k); wanted(at) && uses(pass, at.relation, at.column)) {
    const auto partial = [&](int k) {
      const A* const from = pass.partial_dw + int64_t(slice) * pass.packed + k;
      return sum_of<double, 1>((pass.blocks - slice + kSlices - 1) / kSlices,
                               [&](int64_t n) { return load<1>(from + n * kSlices * pass.packed); })
          .at[0];
    };
    // The products of all self-loops are kept as those of a relation after the last.
    if (pass.loop) sum = pass.loop[at.relation] * partial(k + (pass.relations - at.relation) * pass.ranks * pass.width);
    sum += partial(fresh(k));
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  const Packed at(pass, fresh(k));
  if (slice > 0 || !wanted(at)) return;
  const Column& column = pass.column[at.column];
  sum = sum_of<double, 1>(kSlices, [&](int64_t other) { return load<1>(sums + other * kNeighbours + lane); }).at[0];
  static_cast<A*>(column.dw)[at.group * column.group + at.relation * column.step + at.rank * column.near] = A(sum);
}

// The first blocks add up gradients, the others parts.
template <class T, class I, int V>
__global__ void __launch_bounds__(kFinishThreads, 2) finish(const __grid_constant__ Pass<Sum<T>, I> pass) {
  const int sums = pass.partial_dw ? (pass.packed + kNeighbours - 1) / kNeighbours : 0;
  if (int(blockIdx.x) < sums) add_gradients(pass, int(blockIdx.x) * kNeighbours);
  else add_parts<T, I, V>(pass, int(blockIdx.x) - sums);
}

}  // namespace tensus::cuda
