// Which passes over the graph serve the edges of a DAG: the propagation's contraction plan.
//
// Forward, the share of an edge j -> k can be had in two ways. Gather, then mix: one sparse pass at the tail, of width
// ranks[j], feeds all heads of j. Mix, then gather: at the head, the states of all tails of k are mixed for every
// relation, and one sparse pass of width ranks[k] gathers the results. Every edge needs a pass at one of its ends, so a
// set of passes is a vertex cover of the bipartite graph of tails and heads; the cheapest, a cover of minimum weight,
// is a minimum cut. Backward, the ends have swapped their roles.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace tensus {

// The size of what a pass reads of the graph: the relations that its links use.
struct GraphSize {
  int64_t nodes, relations, edges;
};

// For every edge of the DAG, whether it is mixed first: forward (at its head), or backward (at its tail). At every
// node, `at_tail` is the size for the edges that leave it, `at_head` that for those that enter it.
std::vector<bool> mixed_first(const std::vector<GraphSize>& at_tail, const std::vector<GraphSize>& at_head,
                              const std::vector<int64_t>& ranks, const std::vector<int64_t>& tails,
                              const std::vector<int64_t>& heads, bool backward);

// The left nodes of a vertex cover of least weight; every edge (left, right) without one is covered by its right node.
std::vector<bool> least_cover(const std::vector<std::pair<int64_t, int64_t>>& edges, const std::vector<int64_t>& left,
                              const std::vector<int64_t>& right);

}  // namespace tensus
