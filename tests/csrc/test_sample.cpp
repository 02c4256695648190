// Blocks by themselves: what they must hold, and that threads draw the same; run under sanitizers by test_sample.py.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "../../csrc/cpu/sample.h"

using namespace tensus;

namespace {

int failures = 0;
std::mt19937 generator(7);

int64_t below(int64_t n) { return int64_t(generator() % uint64_t(n)); }

void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

using Edge = std::tuple<int64_t, int64_t, int64_t>;  // row, relation, column

// A random graph with seeds and fan-outs. Every array has its exact size on the heap.
template <class I> struct Case {
  int64_t nodes, relations, hops;
  std::vector<I> row_ptr{0}, seg_ptr{0}, col;
  std::vector<int32_t> seg_rel;
  std::vector<Edge> edges;
  std::vector<int64_t> seeds, fan_out, seg_row;
  Sampling sampling{};

  Case(int64_t N, int64_t C, int64_t E, int64_t hops) : nodes(N), relations(C), hops(hops) {
    for (int64_t e = 0; e < E && C; ++e) edges.emplace_back(below(N), below(C), below(N));
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    size_t e = 0;
    for (int64_t n = 0; n < N; ++n) {
      while (e < edges.size() && std::get<0>(edges[e]) == n) {
        const int64_t relation = std::get<1>(edges[e]);
        for (; e < edges.size() && std::get<0>(edges[e]) == n && std::get<1>(edges[e]) == relation; ++e)
          col.push_back(I(std::get<2>(edges[e])));
        seg_rel.push_back(int32_t(relation)), seg_row.push_back(n), seg_ptr.push_back(I(e));
      }
      row_ptr.push_back(I(seg_rel.size()));
    }
    for (int64_t k = below(6); k >= 0; --k) seeds.push_back(below(N));
    for (int64_t k = 0; k < hops * C; ++k) fan_out.push_back(below(6) - 1);
    row_ptr.shrink_to_fit(), seg_ptr.shrink_to_fit(), col.shrink_to_fit(), seg_rel.shrink_to_fit();
    sampling.whole = {sizeof(I) == 8,
                      N,
                      C,
                      int64_t(seg_rel.size()),
                      int64_t(col.size()),
                      row_ptr.data(),
                      seg_rel.data(),
                      seg_ptr.data(),
                      col.data(),
                      nullptr,
                      nullptr};
    sampling.seeds = seeds.data(), sampling.count = int64_t(seeds.size());
    sampling.fan_out = fan_out.data(), sampling.hops = hops, sampling.seed = generator();
  }
};

std::vector<Edge> edges_of(const Block::Structure& s, bool swapped) {
  std::vector<Edge> edges;
  for (size_t n = 0; n + 1 < s.row_ptr.size(); ++n)
    for (int32_t k = s.row_ptr[n]; k < s.row_ptr[n + 1]; ++k)
      for (int32_t e = s.seg_ptr[k]; e < s.seg_ptr[k + 1]; ++e)
        edges.emplace_back(swapped ? s.col[e] : int64_t(n), s.seg_rel[k], swapped ? int64_t(n) : s.col[e]);
  return edges;
}

template <class I> void compare(const Case<I>& c) {
  const Block block = sample_block<I>(c.sampling);
  check(!block.problem, "a problem");
  check(std::is_sorted(block.node.begin(), block.node.end()), "the order of the nodes");
  for (size_t k = 0; k < c.seeds.size(); ++k) check(block.node[block.seed_row[k]] == c.seeds[k], "a seed");
  const std::vector<Edge> forward = edges_of(block.forward, false), backward = edges_of(block.backward, true);
  check(std::is_sorted(forward.begin(), forward.end()), "the order of the edges");
  for (size_t e = 0; e < forward.size(); ++e) {
    const auto [row, relation, col] = forward[e];
    check(c.edges[block.edge[e]] == Edge(block.node[row], relation, block.node[col]), "an edge");
    check(backward[e] == forward[block.perm[e]], "an edge of the transpose");
  }
  const auto swapped = [](const Edge& a, const Edge& b) {
    return std::make_tuple(std::get<2>(a), std::get<1>(a), std::get<0>(a)) <
           std::make_tuple(std::get<2>(b), std::get<1>(b), std::get<0>(b));
  };
  check(std::is_sorted(backward.begin(), backward.end(), swapped), "the order of the transpose");

  // Each node has what its first hop says: walk the block again.
  std::map<int64_t, int64_t> hop_of;
  for (const int64_t seed : c.seeds) hop_of[seed] = 0;
  for (int64_t hop = 0; hop < c.hops; ++hop) {
    const std::map<int64_t, int64_t> known = hop_of;
    for (size_t s = 0; s < c.seg_rel.size(); ++s) {
      const auto found = known.find(c.seg_row[s]);
      if (found == known.end() || found->second != hop) continue;
      const int64_t all = c.seg_ptr[s + 1] - c.seg_ptr[s], wanted = c.fan_out[hop * c.relations + c.seg_rel[s]];
      const auto place = std::find(block.segment.begin(), block.segment.end(), int64_t(s));
      const int64_t k = place - block.segment.begin();
      const int64_t kept = place == block.segment.end() ? 0 : block.forward.seg_ptr[k + 1] - block.forward.seg_ptr[k];
      check(kept == (wanted < 0 ? all : std::min(all, wanted)), "how many edges are kept");
      for (int64_t e = kept ? block.forward.seg_ptr[k] : 0, n = 0; n < kept; ++e, ++n)
        hop_of.emplace(block.node[block.forward.col[e]], hop + 1);
    }
  }
  check(hop_of.size() == block.node.size(), "the nodes that are found");

  std::vector<Block> others(3);
  std::vector<std::thread> threads;
  for (Block& other : others) threads.emplace_back([&] { other = sample_block<I>(c.sampling); });
  for (std::thread& thread : threads) thread.join();
  for (const Block& other : others)
    check(other.edge == block.edge && other.node == block.node, "another thread's block");
}

}  // namespace

int main() {
  for (int64_t trial = 0; trial < 60; ++trial) {
    compare(Case<int32_t>(1 + below(60), below(4), below(400), below(4)));
    compare(Case<int64_t>(1 + below(60), below(4), below(400), below(4)));
  }
  compare(Case<int32_t>(5000, 2, 20000, 6));
  std::printf("%d failures\n", failures);
  return failures != 0;
}
