// How work is shared among the threads of a team, and how the rows of a graph are cut into chunks.
#pragma once
#include "kernels.h"
#include "vector.h"

namespace tensus {
namespace {

constexpr int64_t kChunkCost = 4096;  // work handed out at a time, see Rows::cost
constexpr int64_t kMaxChunks = 256;

// body(next) runs on every thread of the team; next() hands out 0 .. count - 1, each to whichever thread is free, and
// -1 at the end.
template <class Body> void share(Team team, int64_t count, const Body& body) {
  struct Shared {
    const Body& body;
    int64_t count, taken;
  } shared{body, count, 0};
  const Work work = [](void* context) {
    Shared* all = (Shared*)context;
    all->body([all] {
      const int64_t i = __atomic_fetch_add(&all->taken, 1, __ATOMIC_RELAXED);
      return i < all->count ? i : int64_t(-1);
    });
  };
  count > 1 ? team(work, &shared) : work(&shared);
}

// The same where the cost hardly varies: share(team, blocks(count), ... each(next, count, body) ...) calls body(i).
constexpr int64_t kBlock = 64;

constexpr int64_t blocks(int64_t count) { return (count + kBlock - 1) / kBlock; }

template <class Next, class Body> TENSUS_INLINE void each(const Next& next, int64_t count, const Body& body) {
  for (int64_t block; (block = next()) >= 0;)
    for (int64_t i = block * kBlock; i < smaller(count, (block + 1) * kBlock); ++i) body(i);
}

// The row that a map gives for row n of a pass.
template <class I> TENSUS_INLINE int64_t row_of(RowMap map, int64_t n) { return map ? int64_t(((const I*)map)[n]) : n; }

// The typed view of Segments, cut into chunks of rows of about equal cost. The cut depends on the graph alone, so that
// results do not depend on the number of threads.
template <class A, class I> struct Rows {
  const I* row_ptr;
  const int32_t* seg_rel;
  const I* seg_ptr;
  const I* col;
  const A* seg_val;
  const A* edge_val;
  int64_t nodes, relations, edges;
  const I* node;
  const I *cut_rows, *cut_segments;  // of the whole structure
  int64_t cut_nodes;

  explicit Rows(const Segments& g)
      : row_ptr((const I*)g.row_ptr), seg_rel(g.seg_rel), seg_ptr((const I*)g.seg_ptr), col((const I*)g.col),
        seg_val((const A*)g.seg_val), edge_val((const A*)g.edge_val), nodes(g.nodes), relations(g.relations),
        edges(g.edges), node((const I*)g.node) {
    const Segments& whole = g.whole ? *g.whole : g;
    cut_rows = (const I*)whole.row_ptr, cut_segments = (const I*)whole.seg_ptr, cut_nodes = whole.nodes;
  }

  // The cost of the rows before row n, in the whole structure; a segment or a row costs about as much as four edges.
  int64_t cost(int64_t n) const {
    const int64_t m = n == nodes ? cut_nodes : row_of<I>(node, n);
    return int64_t(cut_segments[cut_rows[m]]) + 4 * int64_t(cut_rows[m]) + 4 * m;
  }

  int64_t chunks(int64_t most = kMaxChunks) const { return smaller(most, 1 + cost(nodes) / kChunkCost); }

  int64_t first_row(int64_t chunk, int64_t chunks) const {
    const double goal = double(cost(nodes)) / double(chunks) * double(chunk);
    if (chunk == chunks) return nodes;
    int64_t low = 0, high = nodes;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      double(cost(middle)) < goal ? low = middle + 1 : high = middle;
    }
    return low;
  }
};

}  // namespace
}  // namespace tensus
