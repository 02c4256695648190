// The loops in which the time is spent: sums over the edges of a segment, mixes by small matrices, inner products.
#pragma once
#include "stripes.h"
#include "work.h"

namespace tensus {
namespace {

constexpr int64_t kPrefetch = 8;  // edges ahead

// Ranks and features that are template arguments are known at compile time, unless they are 0.
template <int N> TENSUS_INLINE int64_t known(int64_t number) { return N ? N : number; }

// The rows of a state, `stride` numbers apart: all in one place, or some of them in another.
template <class T> struct Whole {
  using Number = T;
  const T* x;

  TENSUS_INLINE const T* row(int64_t n, int64_t stride) const { return x + n * stride; }
};

template <class T> struct Parted {
  using Number = T;
  const T *x, *apart;  // from both, a row is as far as its number says
  int64_t border;

  Parted(const void* state, const Halo& halo, int64_t stride)
      : x((const T*)state), apart(halo.rows ? (const T*)halo.rows - halo.border * stride : nullptr),
        border(halo.border) {}

  TENSUS_INLINE const T* row(int64_t n, int64_t stride) const { return (n < border ? x : apart) + n * stride; }
};

// out[t] = sum over the edges of a segment of value * x[col, t], t = 0 .. width; the tile of sums stays in registers.
// Rows of x are `stride` apart, and exactly their width if that is known. `readable` entries of col may be read, which
// is at least `count`: the rows of the next segments are prefetched too.
template <int W, bool kWeighted, class X, class I, class A>
TENSUS_INLINE void gather(const X& x, int64_t width, int64_t stride, const I* col, const A* value, int64_t count,
                          int64_t readable, A scale, A* out) {
  using T = typename X::Number;
  for_tiles<A, 8>(known<W>(width), [&]<int V, int L>(int64_t t) TENSUS_FORCE {
    Pack<A, L> sum[V] = {};
    const auto add = [&](int64_t e) TENSUS_FORCE {
      const T* row = x.row(int64_t(col[e]), known<W>(stride)) + t;
      for (int v = 0; v < V; ++v) {
        if constexpr (kWeighted) sum[v] += value[e] * load<L>(row + v * L);
        else sum[v] += load<L>(row + v * L);
      }
    };
    int64_t e = 0;
    for (const int64_t end = smaller(count, readable - kPrefetch); e < end; ++e) {
      const char* ahead = (const char*)(x.row(int64_t(col[e + kPrefetch]), known<W>(stride)) + t);
      for (int b = 0; b < V * L * int(sizeof(T)); b += 64) __builtin_prefetch(ahead + b);
      add(e);
    }
    for (; e < count; ++e) add(e);
    for (int v = 0; v < V; ++v) store<L>(out + t + v * L, sum[v] * scale);
  });
}

constexpr int64_t kPartEdges = 2048;  // more edges are summed in parts, so that errors do not grow with their number

template <int W, class X, class I, class A>
TENSUS_INLINE void gather_edges(const Rows<A, I>& g, int64_t begin, int64_t count, A scale, const X& x, int64_t width,
                                int64_t stride, A* out) {
  const int64_t readable = g.edges - begin;
  if (g.edge_val) gather<W, true>(x, width, stride, g.col + begin, g.edge_val + begin, count, readable, scale, out);
  else gather<W, false>(x, width, stride, g.col + begin, (const A*)nullptr, count, readable, scale, out);
}

// Sums of kPartEdges edges, kPartEdges of which are summed in their turn.
template <class X, class I, class A>
__attribute__((noinline)) void gather_long(const Rows<A, I>& g, int64_t begin, int64_t count, A scale, const X& x,
                                           int64_t width, int64_t stride, A* out) {
  const int64_t step = count > kPartEdges * kPartEdges ? kPartEdges * kPartEdges : kPartEdges;
  const Scratch<A> part(width);
  for (int64_t done = 0; done < count; done += step) {
    const int64_t size = smaller(count - done, step);
    A* const to = done ? part.get() : out;
    if (size > kPartEdges) gather_long(g, begin + done, size, scale, x, width, stride, to);
    else gather_edges<0>(g, begin + done, size, scale, x, width, stride, to);
    for (int64_t t = 0; done && t < width; ++t) out[t] += part[t];
  }
}

template <int W, class X, class I, class A>
TENSUS_INLINE void gather_segment(const Rows<A, I>& g, int64_t s, const X& x, int64_t width, int64_t stride, A* out) {
  const int64_t begin = g.seg_ptr[s], count = g.seg_ptr[s + 1] - begin;
  const A scale = g.seg_val ? g.seg_val[s] : A(1);
  if (count > kPartEdges) gather_long(g, begin, count, scale, x, width, stride, out);
  else gather_edges<W>(g, begin, count, scale, x, width, stride, out);
}

// The same, not inlined.
template <class X, class I, class A>
__attribute__((noinline)) void gather_any(const Rows<A, I>& g, int64_t s, const X& x, int64_t width, A* out) {
  gather_segment<0>(g, s, x, width, width, out);
}

// Calls with_rank<R>(): loops over a rank of 1 or 2, with kFour also of 4, are unrolled. R = 0 stands for all other
// ranks, whose own work is enough to hide what the loops cost.
template <bool kFour = false, class WithRank> TENSUS_INLINE void for_rank(int64_t rank, const WithRank& with_rank) {
  if (rank == 1) return with_rank.template operator()<1>();
  if (rank == 2) return with_rank.template operator()<2>();
  if constexpr (kFour)
    if (rank == 4) return with_rank.template operator()<4>();
  with_rank.template operator()<0>();
}

// Calls with_features<F>() with the usual numbers of features, F = 0 for all others; kFew: also with those that are too
// few for several stripes.
template <bool kFew, class WithFeatures> void for_features(int64_t features, const WithFeatures& with_features) {
  if (features == 64) return with_features.template operator()<64>();
  if constexpr (!kSanitized) {
    if (features == 128) return with_features.template operator()<128>();
  }
  if constexpr (kFew && !kSanitized) {
    if (features == 16) return with_features.template operator()<16>();
    if (features == 32) return with_features.template operator()<32>();
  }
  with_features.template operator()<0>();
}

// out[c, f] (+)= sum over blocks b and rows r of matrix[b](r, c) * block[b][r, f], for the K columns from `column`.
// Every entry of a matrix is a number for each stripe of features.
template <int R, int K, int F, int U, class O, class A>
TENSUS_INLINE void mix_columns(const A* const* block, const A* const* matrix, int64_t count, int64_t rows,
                               int64_t columns, int64_t column, int64_t features, O* out, bool accumulate) {
  const int64_t stripes = count_stripes<U, A>(known<F>(features));
  for_tiles<A, kRegisters / 2 / K>(known<F>(features), [&]<int V, int L>(int64_t f) TENSUS_FORCE {
    Pack<A, L> sum[K][V] = {};
    O* const to = out + column * known<F>(features) + f;
    if (accumulate)
      for (int k = 0; k < K; ++k)
        for (int v = 0; v < V; ++v) sum[k][v] = load<L>(to + k * known<F>(features) + v * L);
    for (int64_t b = 0; b < count; ++b) {
      const A* x = block[b] + f;
      const A* w = matrix[b] + column * stripes + stripe_of<U, A>(f);
      for (int64_t r = 0; r < known<R>(rows); ++r) {
        Pack<A, L> row[V];
        for (int v = 0; v < V; ++v) row[v] = load<L>(x + r * known<F>(features) + v * L);
        for (int k = 0; k < K; ++k)
          for (int v = 0; v < V; ++v) sum[k][v] += weight_of<U, L>(w + (r * columns + k) * stripes, v) * row[v];
      }
    }
    for (int k = 0; k < K; ++k)
      for (int v = 0; v < V; ++v) store<L>(to + k * known<F>(features) + v * L, sum[k][v]);
  });
}

// Mixes `count` blocks of (rows, F) by a matrix (rows, columns) each into out (columns, F).
template <int R, int C, int F, int U, class O, class A>
void mix(const A* const* block, const A* const* matrix, int64_t count, int64_t rows, int64_t columns, int64_t features,
         O* out, bool accumulate) {
  const auto tile = [&]<int K>(int64_t column) TENSUS_FORCE {
    mix_columns<R, K, F, U>(block, matrix, count, rows, known<C>(columns), column, features, out, accumulate);
  };
  if constexpr (C) return tile.template operator()<C>(0);
  int64_t c = 0;
  for (; c + 4 <= columns; c += 4) tile.template operator()<4>(c);
  for (; c + 2 <= columns; c += 2) tile.template operator()<2>(c);
  for (; c < columns; ++c) tile.template operator()<1>(c);
}

// The most vectors of a tile of y that stay in registers beside the sums and a row of x.
template <int R, int K> constexpr int inner_vectors() {
  constexpr int free = (kRegisters - R * K - R) / K;
  return free >= 8 ? 8 : free >= 4 ? 4 : free >= 2 ? 2 : 1;
}

// lanes[b](r, c) += <block[b][r], y[c]> for R rows and K columns of every block, each inner product left spread over
// the lanes of its vectors. From block `fresh` on, stripes are overwritten. What is read of y serves all blocks.
template <int R, int K, int F, int U, class A, class T>
TENSUS_INLINE void inner_tile(const A* const* block, A* const* lanes, int64_t count, int64_t fresh, int64_t row,
                              int64_t column, int64_t columns, int64_t features, const T* y) {
  const int64_t size = known<F>(features), spread = product_vectors<U, A>(size) * kLanes<A>;
  constexpr int kVectors = U == kAll ? inner_vectors<R, K>() : U == kEach ? 1 : U;
  for_tiles<A, kVectors>(size, [&]<int V, int L>(int64_t f) TENSUS_FORCE {
    Pack<A, L> right[K][V];
    for (int k = 0; k < K; ++k)
      for (int v = 0; v < V; ++v) right[k][v] = load<L>(y + (column + k) * size + f + v * L);
    constexpr bool kLong = V > 2;  // so that errors grow with the number of nodes, not of features
    for (int64_t b = 0; b < count; ++b) {
      const A* const x = block[b] + row * size + f;
      A* const to = lanes[b] + (row * columns + column) * spread + lane_of<U, A>(f);
      Pack<A, L> sum[R][K] = {};
      const auto each_sum = [&](const auto& visit) TENSUS_FORCE {
        for (int r = 0; r < R; ++r)
          for (int k = 0; k < K; ++k) visit(sum[r][k], to + (r * columns + k) * spread);
      };
      const bool add = !kFresh<U> || b < fresh || !begins_stripe<U, A>(f);
      const auto add_lanes = [](auto& s, const A* lane) TENSUS_FORCE { s += load<L>(lane); };
      if (!kLong && add) each_sum(add_lanes);
      for (int v = 0; v < V; ++v)
        for (int r = 0; r < R; ++r) {
          const Pack<A, L> left = load<L>(x + r * size + v * L);
          for (int k = 0; k < K; ++k) sum[r][k] += left * right[k][v];
        }
      if (kLong && add) each_sum(add_lanes);
      each_sum([](const auto& s, A* lane) TENSUS_FORCE { store<L>(lane, s); });
    }
  });
}

// The inner products of the `rows` rows of every block with the `columns` rows of y.
template <int R, int C, int F, int U, class A, class T>
void inner(const A* const* block, A* const* lanes, int64_t count, int64_t fresh, int64_t rows, int64_t columns,
           int64_t features, const T* y) {
  const auto rows_of = [&]<int K>(int64_t c) TENSUS_FORCE {
    int64_t r = 0;
    const auto tile = [&]<int N>() TENSUS_FORCE {
      inner_tile<N, K, F, U>(block, lanes, count, fresh, r, c, known<C>(columns), features, y);
      r += N;
    };
    if constexpr (R) return tile.template operator()<R>();
    while (r + 4 <= rows) tile.template operator()<4>();
    while (r + 2 <= rows) tile.template operator()<2>();
    while (r < rows) tile.template operator()<1>();
  };
  if constexpr (C) return rows_of.template operator()<C>(0);
  int64_t c = 0;
  for (; c + 2 <= columns; c += 2) rows_of.template operator()<2>(c);
  for (; c < columns; ++c) rows_of.template operator()<1>(c);
}

template <class A> A sum_lanes(Pack<A, kLanes<A>> pack) {
  A sum = 0;
  for (int l = 0; l < kLanes<A>; ++l) sum += pack[l];
  return sum;
}

// A row of a state as sums: the row itself, or a copy where its numbers are narrower.
template <class T> TENSUS_INLINE const Sum<T>* as_sums(const T* row, int64_t size, Sum<T>* copy) {
  if constexpr (sizeof(T) == sizeof(Sum<T>)) return row;
  else {
    for_tiles<Sum<T>, 1>(size, [&]<int, int L>(int64_t t) TENSUS_FORCE { store<L>(copy + t, load<L>(row + t)); });
    return copy;
  }
}

}  // namespace
}  // namespace tensus
