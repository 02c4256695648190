// Whether a structure is sound. This looks at every index once, so that everything else can trust them.
#pragma once
#include "work.h"

namespace tensus {
namespace {

// Whether holds(i) for all i below count, tested on all threads.
template <class Holds> bool all_hold(Team team, int64_t count, const Holds& holds) {
  constexpr int64_t kStep = 1 << 14;
  bool sound = true;
  share(team, (count + kStep - 1) / kStep, [&](const auto& next) {
    for (int64_t step; (step = next()) >= 0;) {
      bool good = true;
      for (int64_t i = step * kStep; i < smaller(count, (step + 1) * kStep); ++i) good &= holds(i);
      if (!good) __atomic_store_n(&sound, false, __ATOMIC_RELAXED);
    }
  });
  return sound;
}

template <class I> bool is_partition(Team team, const I* pointer, int64_t count, int64_t total) {
  return pointer[0] == 0 && pointer[count] == total &&
         all_hold(team, count, [=](int64_t i) { return pointer[i] <= pointer[i + 1]; });
}

template <class I> struct UnsignedOf {
  using type = uint32_t;
};
template <> struct UnsignedOf<int64_t> {
  using type = uint64_t;
};

template <class I> const char* check_segments(const Segments& g, int64_t columns, Team team) {
  typedef typename UnsignedOf<I>::type U;  // one comparison for both ends of a range
  const I* col = (const I*)g.col;
  if (!is_partition(team, (const I*)g.row_ptr, g.nodes, g.segments))
    return "row_ptr must rise from 0 to the number of segments";
  const uint32_t relations = uint32_t(g.relations);
  if (!all_hold(team, g.segments, [&](int64_t s) { return uint32_t(g.seg_rel[s]) < relations; }))
    return "seg_rel must lie in [0, number of relations)";
  if (!g.seg_ptr) return nullptr;
  if (!is_partition(team, (const I*)g.seg_ptr, g.segments, g.edges))
    return "seg_ptr must rise from 0 to the number of edges";
  const U limit = U(columns);
  if (!all_hold(team, g.edges, [=](int64_t e) { return U(col[e]) < limit; }))
    return "col must lie in [0, number of columns)";
  return nullptr;
}

const char* check(const Segments& g, int64_t columns, Team team) {
  return g.wide ? check_segments<int64_t>(g, columns, team) : check_segments<int32_t>(g, columns, team);
}

}  // namespace
}  // namespace tensus
