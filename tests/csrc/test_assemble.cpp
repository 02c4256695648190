// Graphs of lists of edges by themselves, on two threads, against a map; run under sanitizers by test_assemble.py.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "../../csrc/cpu/assemble.h"
#include "../../csrc/cpu/normalize.h"

using namespace tensus;

namespace {

int failures = 0;
std::mt19937 generator(3);

int64_t below(int64_t n) { return int64_t(generator() % uint64_t(n)); }

void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

void two_threads(Work work, void* context) {
  std::thread other(work, context);
  work(context);
  other.join();
}

using Edge = std::tuple<int64_t, int64_t, int64_t>;  // row, relation, column
using Ids = std::vector<int64_t>;

// Random lists between ranges of nodes, and how often each edge is in them. Every array has its exact size on the heap.
struct Case {
  int64_t nodes;
  std::vector<Ids> rows, cols;
  std::vector<EdgeList> lists;
  std::vector<Edge> given;
  std::map<Edge, int64_t> times, transposed;

  Case(int64_t N, int64_t C, int64_t E) : nodes(N), rows(C), cols(C) {
    for (int64_t i = 0; i < C; ++i) {
      const int64_t first_row = below(N), first_col = below(N);
      const int64_t row_count = N - first_row, col_count = 1 + below(N - first_col);
      for (int64_t e = 0; e < E; ++e) rows[i].push_back(below(row_count)), cols[i].push_back(below(col_count));
      for (int64_t e = 0; e < E; ++e) {
        const int64_t row = first_row + rows[i][e], col = first_col + cols[i][e];
        given.emplace_back(row, i, col);
        ++times[{row, i, col}], ++transposed[{col, i, row}];
      }
      rows[i].shrink_to_fit(), cols[i].shrink_to_fit();
      lists.push_back({rows[i].data(), cols[i].data(), E, first_row, row_count, first_col, col_count});
    }
  }
};

template <class I> struct Arrays {
  std::vector<I> row_ptr, seg_ptr, col;
  std::vector<int32_t> seg_rel;

  Arrays(int64_t nodes, int64_t segments, int64_t edges)
      : row_ptr(nodes + 1), seg_ptr(segments + 1), col(edges), seg_rel(segments) {}

  typename Assembly<I>::Direction direction() { return {row_ptr.data(), seg_rel.data(), seg_ptr.data(), col.data()}; }

  std::vector<Edge> edges() const {
    std::vector<Edge> all;
    for (size_t n = 0; n + 1 < row_ptr.size(); ++n)
      for (I s = row_ptr[n]; s < row_ptr[n + 1]; ++s)
        for (I e = seg_ptr[s]; e < seg_ptr[s + 1]; ++e) all.emplace_back(n, seg_rel[s], col[e]);
    return all;
  }
};

std::vector<Edge> keys(const std::map<Edge, int64_t>& map) {
  std::vector<Edge> all;
  for (const auto& [edge, count] : map) all.push_back(edge);
  return all;
}

template <class I> void compare(int64_t N, int64_t C, int64_t E, bool positions) {
  const Case c(N, C, E);
  Assembly<I> assembly(c.lists, N, positions, two_threads);
  check(!assembly.bad(), "a bad id is found where none is");
  const int64_t edges = assembly.edges();
  check(edges == int64_t(c.times.size()), "the number of edges");
  check(assembly.repeats() == (edges < C * E), "whether edges repeat");
  Arrays<I> forward(N, assembly.segments(), edges), back(N, assembly.transposed_segments(), edges);
  std::vector<I> perm(edges), times(assembly.repeats() ? edges : 0), places(positions ? C * E : 0);
  assembly.fill({forward.direction(), back.direction(), perm.data(), times.empty() ? nullptr : times.data(),
                 positions ? places.data() : nullptr});
  const std::vector<Edge> all = forward.edges(), turned = back.edges();
  check(all == keys(c.times) && turned == keys(c.transposed), "the edges and their order");
  for (int64_t e = 0; e < edges; ++e) {
    const auto [col, relation, row] = turned[e];
    check(all[perm[e]] == Edge(row, relation, col), "perm");
    check(times.empty() || times[e] == c.times.at(all[e]), "how often an edge was given");
  }
  for (size_t e = 0; e < places.size(); ++e) check(all[places[e]] == c.given[e], "the place of a given edge");

  const int64_t segments = assembly.segments();
  std::vector<uint8_t> divide(C);
  std::vector<double> loop(C), value(times.empty() ? segments : edges), seg_loop(segments), transposed(edges);
  for (int64_t i = 0; i < C; ++i) divide[i] = uint8_t(below(2)), loop[i] = double(below(2));
  const Normalized found =
      normalize<double, I>({forward.seg_rel.data(), forward.seg_ptr.data(), perm.data(),
                            times.empty() ? nullptr : times.data(), segments, edges},
                           divide, loop.data(), {value.data(), seg_loop.data(), transposed.data()}, two_threads);
  check(!found.error, "an error where none is");
  std::map<std::pair<int64_t, int64_t>, double> sums;
  for (const auto& [edge, count] : c.times) sums[{std::get<0>(edge), std::get<1>(edge)}] += double(count);
  for (int64_t e = 0; e < edges; ++e) {
    const auto [row, relation, col] = all[perm[e]];
    const double count = double(c.times.at(all[perm[e]]));
    const double expected = divide[relation] ? count / (sums.at({row, relation}) + loop[relation]) : count;
    check(std::abs(transposed[e] - expected) < 1e-12, "a value");
  }
}

void refuse() {
  const Ids good{0, 1}, bad{0, 5};
  const std::vector<EdgeList> lists{{good.data(), good.data(), 2, 0, 2, 0, 2},
                                    {good.data(), bad.data(), 2, 0, 2, 0, 2}};
  const Assembly<int32_t> assembly(lists, 2, true, two_threads);
  check(assembly.bad() && assembly.bad()->list == 1 && assembly.bad()->id == 5 && !assembly.bad()->is_row, "a bad id");
}

}  // namespace

int main() {
  for (const bool positions : {false, true})
    for (const auto& [N, C, E] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {1, 1, 1}, {1, 2, 5}, {4, 0, 0}, {7, 3, 0}, {9, 4, 30}, {300, 5, 4000}, {5000, 3, 3000}}) {
      compare<int32_t>(N, C, E, positions);
      compare<int64_t>(N, C, E, positions);
    }
  refuse();
  std::printf("%d failures\n", failures);
  return failures != 0;
}
