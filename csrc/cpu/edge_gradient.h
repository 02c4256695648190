// The gradient of the edge values: for every edge, an inner product of what stands at its two ends.
#pragma once
#include "weights.h"

namespace tensus {
namespace {

template <class A, class T> TENSUS_INLINE A dot(const A* x, const T* y, int64_t size) {
  constexpr int L = kLanes<A>;
  Pack<A, L> sum[4] = {};
  int64_t t = 0;
  for (; t + 4 * L <= size; t += 4 * L)
    for (int v = 0; v < 4; ++v) sum[v] += load<L>(x + t + v * L) * load<L>(y + t + v * L);
  for (; t + L <= size; t += L) sum[0] += load<L>(x + t) * load<L>(y + t);
  for (; t < size; ++t) sum[0][0] += x[t] * load<1>(y + t)[0];
  return sum_lanes<A>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// For a segment (n, i), mixed[p] = sum_l sum_q w_l[i, p, q] other_l[n, q] is the gradient of its gathered sum.
template <class T, class I, int U> void edge_gradient_pass(const EdgeGradient& job) {
  using A = Sum<T>;
  const Rows<A, I> g(job.graph);
  const int64_t width = job.rank * job.features, chunks = g.chunks();
  const T* x = (const T*)job.x;
  A* grad = (A*)job.grad;
  const Weights<A, U> weights(job.links, job.link_count, g.relations, job.rank, false, {job.groups, job.features});
  const NodeMix<T, I, U> mix_node(job.links, job.link_count, job.features);

  share(job.team, chunks, [&](const auto& next) {
    Scratch<A> mixed(width), buffer(mix_node.buffer_size());
    for (int64_t chunk; (chunk = next()) >= 0;) {
      const int64_t end = g.first_row(chunk + 1, chunks);
      for (int64_t n = g.first_row(chunk, chunks); n < end; ++n)
        for (int64_t s = g.row_ptr[n]; s < g.row_ptr[n + 1]; ++s) {
          mix_node(n, weights.of(g.seg_rel[s]), job.rank, mixed.get(), false, buffer.get());
          for (int64_t e = g.seg_ptr[s]; e < g.seg_ptr[s + 1]; ++e) {
            if (e + kPrefetch < g.edges) __builtin_prefetch(x + int64_t(g.col[e + kPrefetch]) * width);
            const A value = dot<A, T>(mixed.get(), x + int64_t(g.col[e]) * width, width);
            grad[e] = job.accumulate ? grad[e] + value : value;
          }
        }
    }
  });
}

}  // namespace
}  // namespace tensus
