// Walks by themselves, against dense sums; run under sanitizers by test_frontier.py.
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "../../csrc/cpu/frontier.h"

using namespace tensus;

namespace {

int failures = 0;
std::mt19937 generator(7);

int64_t below(int64_t n) { return int64_t(generator() % uint64_t(n)); }
double normal() { return std::normal_distribution<double>()(generator); }

void alone(Work work, void* context) { work(context); }

void three_threads(Work work, void* context) {
  std::thread second(work, context), third(work, context);
  work(context);
  second.join();
  third.join();
}

void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

// A random graph of facts with a walk of some links over it. Every array has its exact size on the heap.
struct Case {
  int64_t entities, relations, links, rank, operators = 2 * relations + 1;
  std::vector<int64_t> ptr{0}, ranks, depth, relation, start, answer, own, known_ptr{0}, known, popular_ptr{0};
  std::vector<int32_t> target, op, fact, popular, times;
  std::vector<double> value, weight, share;
  std::vector<std::vector<double>> w, dw;
  std::vector<double> dweight;
  std::vector<WalkLink> walk_links;
  Walk walk{};

  Case(int64_t N, int64_t R, int64_t facts, int64_t steps, int64_t d, bool counted)
      : entities(N), relations(R), links(steps), rank(d) {
    std::vector<std::vector<std::vector<std::pair<int64_t, int64_t>>>> out(
        N, std::vector<std::vector<std::pair<int64_t, int64_t>>>(operators));
    std::vector<int64_t> heads, kinds, tails;
    for (int64_t f = 0; f < facts; ++f) {
      const int64_t h = below(N), r = below(R), t = below(N);
      out[h][r].push_back({t, f}), out[t][R + r].push_back({h, f});
      heads.push_back(h), kinds.push_back(r), tails.push_back(t);
    }
    for (int64_t u = 0; u < N; ++u) {
      out[u][2 * R].push_back({u, -1});
      for (int64_t i = 0; i < operators; ++i)
        for (auto [v, f] : out[u][i]) {
          target.push_back(int32_t(v)), op.push_back(int32_t(i)), fact.push_back(int32_t(f));
          value.push_back(normal());
        }
      ptr.push_back(int64_t(target.size()));
    }
    for (int64_t k = 0; k <= steps; ++k) ranks.push_back(k == 0 || k == steps ? 1 : d), depth.push_back(k);
    for (int64_t k = 0; k < steps; ++k) {
      w.emplace_back(2 * R * operators * ranks[k] * ranks[k + 1]);
      for (double& x : w.back()) x = 0.5 * normal();
      dw.emplace_back(w.back().size());
    }
    for (int64_t r = 0; r < 2 * R; ++r) {
      for (int64_t f = 0; f < facts; ++f) {
        if (kinds[f] != r % R || below(3) == 0) continue;
        relation.push_back(r), start.push_back(r < R ? heads[f] : tails[f]);
        answer.push_back(r < R ? tails[f] : heads[f]), own.push_back(below(2) ? f : -1);
        for (int64_t v = 0; v < N; ++v)
          if (below(4) == 0) known.push_back(v);
        known_ptr.push_back(int64_t(known.size()));
        share.push_back(normal());
      }
      for (int64_t v = 0; v < N; ++v)
        if (below(3) == 0) popular.push_back(int32_t(v)), times.push_back(int32_t(1 + below(3)));
      popular_ptr.push_back(int64_t(popular.size()));
      weight.push_back(normal());
    }
    dweight.resize(2 * R);
    for (int64_t k = 0; k < steps; ++k) walk_links.push_back({k, k + 1, w[k].data(), dw[k].data()});
    walk.graph = {N, operators, ptr.back(), ptr.data(), target.data(), op.data(), fact.data(), value.data()};
    walk.dag = {steps + 1, 2 * R, ranks.data(), depth.data(), walk_links.data(), steps};
    if (counted) walk.popularity = {popular_ptr.data(), popular.data(), times.data(), weight.data(), dweight.data()};
    walk.queries = {int64_t(relation.size()), relation.data(), start.data(), answer.data(), own.data(),
                    known_ptr.data(),         known.data()};
  }

  std::vector<double> scores(int64_t n) const {
    std::vector<double> h(entities), next;
    h[start[n]] = 1;
    for (int64_t k = 0; k < links; ++k) {
      const int64_t P = ranks[k], Q = ranks[k + 1];
      next.assign(entities * Q, 0);
      for (int64_t u = 0; u < entities; ++u)
        for (int64_t e = ptr[u]; e < ptr[u + 1]; ++e) {
          if (own[n] >= 0 && fact[e] == own[n]) continue;
          for (int64_t p = 0; p < P; ++p)
            for (int64_t q = 0; q < Q; ++q)
              next[target[e] * Q + q] +=
                  value[e] * h[u * P + p] * w[k][((relation[n] * operators + op[e]) * P + p) * Q + q];
        }
      h.swap(next);
    }
    if (walk.popularity.ptr)
      for (int64_t k = popular_ptr[relation[n]]; k < popular_ptr[relation[n] + 1]; ++k)
        h[popular[k]] += weight[relation[n]] * std::log1p(times[k] - (own[n] >= 0 && popular[k] == answer[n]));
    return h;
  }

  double loss(int64_t n) const {
    const std::vector<double> x = scores(n);
    std::vector<bool> out(entities);
    for (int64_t k = known_ptr[n]; k < known_ptr[n + 1]; ++k) out[known[k]] = known[k] != answer[n];
    double total = 0;
    for (int64_t v = 0; v < entities; ++v) total += out[v] ? 0 : std::exp(x[v]);
    return std::log(total) - x[answer[n]];
  }
};

void compare(Case& c, int64_t width) {
  c.walk.width = width;
  const int64_t count = c.walk.queries.count;
  std::vector<double> loss(count), again(count), scores(count * c.entities);
  std::vector<int64_t> higher(count), equal(count), edges(count);
  for (auto& dw : c.dw) dw.assign(dw.size(), 0);
  c.dweight.assign(c.dweight.size(), 0);
  c.walk.team = alone;
  walk_loss<double>(c.walk, {true, 0}, c.share.data(), loss.data());
  const std::vector<std::vector<double>> first = c.dw;
  for (auto& dw : c.dw) std::fill(dw.begin(), dw.end(), 0);
  c.walk.team = three_threads;
  walk_loss<double>(c.walk, {true, 0}, c.share.data(), again.data());
  check(loss == again && first == c.dw, "other bits on three threads");
  walk_scores<double>(c.walk, scores.data());
  walk_ranks<double>(c.walk, higher.data(), equal.data());
  walk_costs(c.walk, edges.data());
  for (int64_t n = 0; n < count; ++n) {
    const std::vector<double> want = c.scores(n);
    for (int64_t v = 0; v < c.entities; ++v)
      check(std::abs(scores[n * c.entities + v] - want[v]) <= 1e-9 * (1 + std::abs(want[v])), "a score");
    check(std::abs(loss[n] - c.loss(n)) <= 1e-9 * (1 + std::abs(loss[n])), "a loss");
    check(higher[n] >= 0 && equal[n] >= 0 && higher[n] + equal[n] < c.entities, "a rank");
    check(edges[n] > 0 && edges[n] <= c.links * c.walk.graph.edges, "a cost");
  }
  for (int64_t trial = 0; trial < 6 && count; ++trial) {  // the gradient, by differences
    std::vector<double>& w = c.w[below(c.links)];
    const int64_t k = below(int64_t(w.size())), e = &w - c.w.data();
    const double step = 1e-5, old = w[k];
    double slope = 0;
    for (double sign : {1.0, -1.0}) {
      w[k] = old + sign * step;
      for (int64_t n = 0; n < count; ++n) slope += sign * c.share[n] * c.loss(n) / (2 * step);
    }
    w[k] = old;
    check(std::abs(slope - first[e][k]) <= 1e-5 * (1 + std::abs(slope)), "a gradient");
  }
}

}  // namespace

int main() {
  for (int64_t trial = 0; trial < 40; ++trial) {
    Case c(1 + below(30), 1 + below(3), below(40), 1 + below(3), 1 + below(5), below(2));
    for (int64_t width : {int64_t(1), kWidth}) compare(c, width);
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
