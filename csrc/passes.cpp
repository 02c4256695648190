#include "passes.h"

#include <algorithm>

namespace tensus {
namespace {

// Augmenting paths, shortest first, on a matrix of capacities: the graphs have some tens of nodes.
class Flow {
 public:
  explicit Flow(size_t nodes) : size_(nodes), capacity_(nodes * nodes) {}

  int64_t& capacity(size_t from, size_t to) { return capacity_[from * size_ + to]; }

  void maximise(size_t source, size_t sink) {
    for (std::vector<size_t> before = reach(source); before[sink] != size_; before = reach(source)) {
      int64_t room = INT64_MAX;
      for (size_t at = sink; at != source; at = before[at]) room = std::min(room, capacity(before[at], at));
      for (size_t at = sink; at != source; at = before[at]) {
        capacity(before[at], at) -= room;
        capacity(at, before[at]) += room;
      }
    }
  }

  // For every node that more flow can reach, the one before it on a shortest path; for the others, the number of nodes.
  std::vector<size_t> reach(size_t source) {
    std::vector<size_t> before(size_, size_), queue{source};
    before[source] = source;
    for (size_t i = 0; i < queue.size(); ++i)
      for (size_t to = 0; to < size_; ++to)
        if (before[to] == size_ && capacity(queue[i], to) > 0) {
          before[to] = queue[i];
          queue.push_back(to);
        }
    return before;
  }

  bool reached(const std::vector<size_t>& before, size_t node) const { return before[node] != size_; }

 private:
  size_t size_;
  std::vector<int64_t> capacity_;
};

}  // namespace

std::vector<bool> least_cover(const std::vector<std::pair<int64_t, int64_t>>& edges, const std::vector<int64_t>& left,
                              const std::vector<int64_t>& right) {
  const size_t source = left.size() + right.size(), sink = source + 1;
  Flow flow(sink + 1);
  for (size_t u = 0; u < left.size(); ++u) flow.capacity(source, u) = left[u];
  for (size_t v = 0; v < right.size(); ++v) flow.capacity(left.size() + v, sink) = right[v];
  for (const auto& [u, v] : edges) flow.capacity(u, left.size() + v) = INT64_MAX / 2;
  flow.maximise(source, sink);
  const std::vector<size_t> before = flow.reach(source);
  std::vector<bool> cover(left.size());
  for (size_t u = 0; u < left.size(); ++u) cover[u] = !flow.reached(before, u);
  return cover;
}

std::vector<bool> mixed_first(const std::vector<GraphSize>& at_tail, const std::vector<GraphSize>& at_head,
                              const std::vector<int64_t>& ranks, const std::vector<int64_t>& tails,
                              const std::vector<int64_t>& heads, bool backward) {
  const std::vector<int64_t>&near = backward ? heads : tails, &far = backward ? tails : heads;
  const std::vector<GraphSize>&at_near = backward ? at_head : at_tail, &at_far = backward ? at_tail : at_head;
  std::vector<std::pair<int64_t, int64_t>> edges;
  std::vector<int64_t> gather_mix, mix_gather;
  // In rows read: a row in order costs half of one at random.
  const auto gather = [&](const GraphSize& graph, size_t k) { return 2 * graph.edges * ranks[k]; };
  for (size_t k = 0; k < ranks.size(); ++k) {
    gather_mix.push_back(gather(at_near[k], k));
    // What is mixed is written for every relation.
    mix_gather.push_back(gather(at_far[k], k) + 2 * at_far[k].relations * at_far[k].nodes * ranks[k]);
    // The gradient of the weights of an edge that is mixed first takes a gather of the tail's state besides.
    if (backward) mix_gather[k] += gather(at_far[k], k);
  }
  for (size_t e = 0; e < tails.size(); ++e) {
    edges.emplace_back(near[e], far[e]);
    // A state that is not gathered is read to be mixed, for each of its edges.
    int64_t& cost = gather_mix[near[e]];
    cost = std::max<int64_t>(cost - at_near[near[e]].nodes * ranks[near[e]], 0);
  }

  const std::vector<bool> gathered = least_cover(edges, gather_mix, mix_gather);
  std::vector<bool> first;
  for (const int64_t node : near) first.push_back(!gathered[node]);
  return first;
}

}  // namespace tensus
