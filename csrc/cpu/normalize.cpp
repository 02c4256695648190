#include "normalize.h"

#include <memory>
#include <numeric>

#include "share.h"

namespace tensus {

template <class Value, class Index>
Normalized normalize(const CountedEdges<Index>& edges, const std::vector<uint8_t>& divide, const Value* loop,
                     const NormalizedValues<Value>& to, Team team) {
  const std::unique_ptr<Value[]> spread(edges.times ? nullptr : new Value[edges.edges]);
  Value* const by_edge = edges.times ? to.value : spread.get();
  std::atomic<bool> values{false}, loops{false};
  std::atomic<const char*> error{nullptr};
  const Chunks segments(edges.segments), transposed(edges.edges);
  share(team, segments.count, [&](int64_t chunk) {
    bool scaled = false, scaled_loop = false;
    for (int64_t s = segments.first(chunk); s < segments.first(chunk + 1); ++s) {
      const int32_t i = edges.seg_rel[s];
      const Index begin = edges.seg_ptr[s], end = edges.seg_ptr[s + 1];
      if (uint32_t(i) >= divide.size()) return void(error = "seg_rel holds a relation that is not there");
      if (begin < 0 || begin > end || end > edges.edges) return void(error = "seg_ptr must rise from 0 to all edges");
      const Index count = edges.times ? std::accumulate(edges.times + begin, edges.times + end, Index(0)) : end - begin;
      const double scale = divide[i] ? 1 / (double(count) + double(loop[i])) : 1;
      scaled |= scale != 1, scaled_loop |= scale != 1 && loop[i] != 0;
      to.loop[s] = Value(double(loop[i]) * scale);
      if (!edges.times) to.value[s] = Value(scale);
      for (Index e = begin; e < end; ++e) by_edge[e] = Value(edges.times ? double(edges.times[e]) * scale : scale);
    }
    if (scaled) values = true;
    if (scaled_loop) loops = true;
  });
  if (error) return {false, false, error};
  share(team, transposed.count, [&](int64_t chunk) {
    for (int64_t e = transposed.first(chunk); e < transposed.first(chunk + 1); ++e) {
      const Index at = edges.perm[e];
      if (at < 0 || at >= edges.edges) return void(error = "perm holds an edge that is not there");
      to.transposed[e] = by_edge[at];
    }
  });
  return {values, loops, error};
}

#define TENSUS_NORMALIZE(Value, Index)                                                                 \
  template Normalized normalize(const CountedEdges<Index>&, const std::vector<uint8_t>&, const Value*, \
                                const NormalizedValues<Value>&, Team);
TENSUS_NORMALIZE(float, int32_t)
TENSUS_NORMALIZE(float, int64_t)
TENSUS_NORMALIZE(double, int32_t)
TENSUS_NORMALIZE(double, int64_t)

}  // namespace tensus
