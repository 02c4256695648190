// The DAG of states that the operators take, checked; see library.cpp for what its arguments mean.
#pragma once
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#include <vector>

namespace tensus {

using Ints = std::vector<int64_t>;

struct Dag {
  Ints ranks, tails, heads;
  Ints offset;      // of each edge's weights, in numbers per relation
  int64_t weights;  // of all edges, in numbers per relation

  Dag(const Ints& ranks, const Ints& tails, const Ints& heads) : ranks(ranks), tails(tails), heads(heads), weights(0) {
    const int64_t nodes = int64_t(ranks.size());
    STD_TORCH_CHECK(nodes >= 2, "ranks must name a source and at least one more state");
    for (const int64_t rank : ranks)
      STD_TORCH_CHECK(rank >= 1 && rank <= (1 << 20), "every rank must lie in [1, 2^20], got ", rank);
    STD_TORCH_CHECK(!tails.empty() && tails.size() == heads.size(), "tails and heads must have one entry per edge");
    std::vector<bool> reached(nodes);
    for (size_t e = 0; e < tails.size(); ++e) {
      STD_TORCH_CHECK(0 <= tails[e] && tails[e] < heads[e] && heads[e] < nodes, "edge ", e, " from ", tails[e], " to ",
                      heads[e], " does not lead onwards within ", nodes, " states");
      reached[heads[e]] = true;
      offset.push_back(weights);
      weights += ranks[tails[e]] * ranks[heads[e]];
      STD_TORCH_CHECK(weights < (int64_t(1) << 48), "the weights are too many");
    }
    for (int64_t k = 1; k < nodes; ++k) STD_TORCH_CHECK(reached[k], "state ", k, " has no incoming edge");
  }

  int64_t last() const { return int64_t(ranks.size()) - 1; }
  int64_t edges() const { return int64_t(tails.size()); }
};

}  // namespace tensus
