// The kernels by themselves, against loops that spell out their definitions; run under sanitizers by
// sanitizing.py. Every array is a heap block of its exact size, so that a read past the end is seen.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "../../csrc/cpu/arena.h"
#include "../../csrc/cpu/kernels.h"
#include "../../csrc/cpu/needed.h"
#include "../../csrc/cpu/select.h"
#include "../../csrc/passes.h"

using namespace tensus;

namespace {

int failures = 0;

#define CHECK(condition, ...)                                     \
  do {                                                            \
    if (!(condition)) {                                           \
      std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                   \
      std::printf("\n");                                          \
      if (++failures == 10) std::exit(1);                         \
    }                                                             \
  } while (false)

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

// ------------------------------------------------------------------------------------------ storage types

struct Half {
  uint16_t bits;
};

double get(float x) { return x; }
double get(double x) { return x; }
double get(Half x) {
  const uint32_t bits = uint32_t(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void set(float& x, double value) { x = float(value); }
void set(double& x, double value) { x = value; }
void set(Half& x, double value) {
  const float single = float(value);
  uint32_t bits;
  std::memcpy(&bits, &single, 4);
  x.bits = uint16_t((bits + 0x8000) >> 16);
}

template <class T> struct Type;
template <> struct Type<float> {
  static constexpr Real real = Real::f32;
  using Sum = float;
  static constexpr double eps = 1e-5;
};
template <> struct Type<double> {
  static constexpr Real real = Real::f64;
  using Sum = double;
  static constexpr double eps = 1e-12;
};
template <> struct Type<Half> {
  static constexpr Real real = Real::bf16;
  using Sum = float;
  static constexpr double eps = 2e-2;
};

template <class T> std::vector<T> random_numbers(int64_t size) {
  std::vector<T> numbers(size);
  for (T& x : numbers) set(x, normal());
  numbers.shrink_to_fit();
  return numbers;
}

template <class T> void compare(const std::vector<T>& got, const std::vector<double>& want, const char* what) {
  double scale = 1e-30, error = 0;
  for (size_t i = 0; i < want.size(); ++i) scale = std::max(scale, std::abs(want[i]));
  bool numbers = true;
  for (size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::abs(get(got[i]) - want[i]));
    numbers = numbers && std::isnan(get(got[i])) == std::isnan(want[i]);
  }
  CHECK(numbers, "%s was read or written where it must not be", what);
  CHECK(error <= Type<T>::eps * scale, "%s is off by %g of %g", what, error, scale);
}

// ------------------------------------------------------------------------------------------ graphs

template <class I, class A> struct Graph {
  std::vector<I> row_ptr{0}, seg_ptr{0}, col;
  std::vector<int32_t> seg_rel;
  std::vector<A> seg_val, edge_val, loop, seg_loop;
  Segments view;
  Loops loops;

  Graph(int64_t nodes, int64_t relations, int64_t degree, bool by_segment, bool by_edge, bool looped) {
    for (int64_t n = 0; n < nodes; ++n) {
      for (int64_t i = 0; i < relations; ++i) {
        const int64_t count = n == 0 ? 40 * degree : below(degree + 1) * below(2);
        if (!count) continue;
        seg_rel.push_back(int32_t(i));
        for (int64_t e = 0; e < count; ++e) col.push_back(I(below(nodes)));
        seg_ptr.push_back(I(col.size()));
      }
      row_ptr.push_back(I(seg_rel.size()));
    }
    row_ptr.shrink_to_fit(), seg_ptr.shrink_to_fit(), col.shrink_to_fit(), seg_rel.shrink_to_fit();
    if (by_segment) seg_val = random_numbers<A>(seg_rel.size());
    if (by_edge) edge_val = random_numbers<A>(col.size());
    if (looped) loop = random_numbers<A>(relations), seg_loop = random_numbers<A>(seg_rel.size());
    view = {sizeof(I) == 8,
            nodes,
            relations,
            int64_t(seg_rel.size()),
            int64_t(col.size()),
            row_ptr.data(),
            seg_rel.data(),
            seg_ptr.data(),
            col.data(),
            by_segment ? seg_val.data() : nullptr,
            by_edge ? edge_val.data() : nullptr};
    loops = {looped ? loop.data() : nullptr, looped ? seg_loop.data() : nullptr, &view};
  }

  // visit(row, relation, column, value) for every entry of every relation, the diagonal among them.
  template <class Visit> void each(bool with_loops, const Visit& visit) const {
    for (int64_t n = 0; n < view.nodes; ++n) {
      std::vector<double> diagonal(loop.begin(), loop.end());
      for (int64_t s = row_ptr[n]; s < row_ptr[n + 1]; ++s) {
        for (int64_t e = seg_ptr[s]; e < seg_ptr[s + 1]; ++e)
          visit(n, seg_rel[s], col[e],
                (seg_val.empty() ? 1 : double(seg_val[s])) * (edge_val.empty() ? 1 : double(edge_val[e])));
        if (!loop.empty()) diagonal[seg_rel[s]] = seg_loop[s];
      }
      if (with_loops)
        for (size_t i = 0; i < diagonal.size(); ++i) visit(n, int64_t(i), n, diagonal[i]);
    }
  }
};

// ------------------------------------------------------------------------------------------ rows of states

// Every other node, or every third and so on, from an offset; all nodes where step is 1, none where it is 0.
template <class I> std::vector<I> every(int64_t step, int64_t nodes, int64_t offset = 0) {
  std::vector<I> some;
  for (int64_t n = offset; step && n < nodes; n += step) some.push_back(I(n));
  return some;
}

template <class I> StateRows rows_of(const std::vector<I>& nodes, bool all, bool compact) {
  if (all) return {};
  return {false, nodes.data(), int64_t(nodes.size()), compact};
}

// The row of a state that a map gives for row n of a pass, and the one that it should give.
template <class I> int64_t mapped(RowMap map, int64_t n) { return map ? static_cast<const I*>(map)[n] : n; }

template <class I> int64_t place_of(const StateRows& state, int64_t node) {
  if (state.all) return node;
  const I* const nodes = static_cast<const I*>(state.node);
  const I* const found = std::lower_bound(nodes, nodes + state.count, node);
  if (found == nodes + state.count || *found != node) return -1;
  return state.compact ? found - nodes : node;
}

// Random numbers where a state has a row; where it has none there is no memory, or none that may be read or written.
template <class T, class I> std::vector<T> random_state(const StateRows& state, int64_t nodes, int64_t width) {
  auto numbers = random_numbers<T>((state.all || !state.compact ? nodes : state.count) * width);
  for (int64_t n = 0; !state.all && !state.compact && n < nodes; ++n)
    for (int64_t k = 0; place_of<I>(state, n) < 0 && k < width; ++k) set(numbers[n * width + k], NAN);
  return numbers;
}

// The same as exact numbers, to be added to: zeros, or what is there already.
template <class T> std::vector<double> start_of(const std::vector<T>& state, bool accumulate) {
  std::vector<double> start;
  for (const T& x : state) start.push_back(accumulate || std::isnan(get(x)) ? get(x) : 0);
  return start;
}

// ------------------------------------------------------------------------------------------ the three kernels

// What a test leaves out: relations, and rows of the near state and of the far ones, which are compact or not. And the
// ends of groups of columns, if there are any.
struct Part {
  int used = 0xff, near_step = 1, far_step = 1;
  bool near_compact = true, far_compact = true;
  std::vector<int64_t> ends = {};
  int64_t own = -1;  // so many rows of a state that is read are in one place, the others in another; all if negative

  bool whole() const { return used == 0xff && near_step == 1 && far_step == 1; }
};

template <class T> struct Cut {
  std::vector<T> here, there;
  Halo halo;

  Cut(const std::vector<T>& state, int64_t own, int64_t width)
      : here(state.begin(), own < 0 ? state.end() : state.begin() + own * width),
        there(state.begin() + here.size(), state.end()) {
    if (own >= 0) halo = {there.data(), own};
  }
};

template <class T, class I>
void test_kernels(const Kernels& kernels, int64_t nodes, int64_t relations, int64_t degree, int64_t rank,
                  std::vector<int64_t> far, int64_t features, int options, Team team, Part some = {}) {
  using A = typename Type<T>::Sum;
  const Groups groups = some.ends.empty() ? Groups{} : Groups{int64_t(some.ends.size()), some.ends.data()};
  const auto group_of = [&](int64_t f) {
    return std::upper_bound(some.ends.begin(), some.ends.end(), f) - some.ends.begin();
  };
  const Graph<I, A> g(nodes, relations, degree, options & 1, options & 2, options & 4);
  CHECK(!kernels.check(g.view, g.view.nodes, team), "a sound structure was refused");

  Flags used(relations);
  for (int64_t i = 0; i < relations; ++i) used[i] = some.used >> (i % 8) & 1;
  const std::vector<I> near_nodes = every<I>(some.near_step, nodes, 1);
  std::vector<std::vector<I>> far_nodes;
  Meeting states{rows_of(near_nodes, some.near_step == 1, some.near_compact), {}, false, bool(options & 4)};
  for (size_t l = 0; l < far.size(); ++l) far_nodes.push_back(every<I>(some.far_step, nodes, int64_t(l)));
  for (size_t l = 0; l < far.size(); ++l)
    states.far.push_back(rows_of(far_nodes[l], some.far_step == 1, some.far_compact == (l % 2 == 0)));
  const auto near_place = [&](int64_t n) { return place_of<I>(states.near, n); };
  const auto far_place = [&](size_t l, int64_t n) { return place_of<I>(states.far[l], n); };

  std::vector<std::vector<T>> other, out;
  std::vector<std::vector<A>> w, dw;
  std::vector<Flags> written;  // rows that nothing leads to are left to the caller where not all rows are there
  std::vector<std::vector<double>> want_out, want_dw;
  std::vector<Link> links;
  for (size_t l = 0; l < far.size(); ++l) {
    other.push_back(random_state<T, I>(states.far[l], nodes, far[l] * features));
    out.push_back(random_state<T, I>(states.far[l], nodes, far[l] * features));
    const int64_t step = rank * far[l];
    w.push_back(random_numbers<A>(groups.count * relations * step));
    dw.push_back(random_numbers<A>(groups.count * relations * step));
    for (int64_t k = 0; k < int64_t(w[l].size()); ++k)  // what is not used has no weight
      if (!used[k / step % relations]) w[l][k] = 0;
    const bool accumulate = l % 2, turned = l % 3 == 1;
    want_out.push_back(start_of(out[l], accumulate));
    want_dw.emplace_back(dw[l].size());
    links.push_back({far[l], w[l].data(), step, turned ? 1 : far[l], turned ? rank : 1, out[l].data(), accumulate,
                     other[l].data(), dw[l].data()});
    links[l].group = relations * step;
    written.emplace_back(out[l].size() / std::max<int64_t>(far[l] * features, 1), char(accumulate));
    if (some.near_step != 1 || some.far_step != 1) links[l].written = written[l].data();
  }
  // visit(link, p, q, where its weight stands) for every weight of a relation.
  const auto each_weight = [&](int64_t i, const auto& visit) {
    for (size_t l = 0; l < far.size(); ++l)
      for (int64_t p = 0; p < rank; ++p)
        for (int64_t q = 0; q < far[l]; ++q) visit(l, p, q, i * links[l].step + p * links[l].near + q * links[l].far);
  };
  // Where the weight for a column stands, given that for the first group.
  const auto place = [&](size_t l, int64_t at, int64_t f) { return group_of(f) * links[l].group + at; };
  // pass(graph, row map of the near state), over the whole structure or what is selected of it.
  const auto run = [&](bool mixed_first, const auto& pass) {
    states.mixed_first = mixed_first;
    if (some.whole()) return pass(g.view, nullptr, nullptr);
    const Selection selection(g.view, used, states, true, team);
    for (size_t l = 0; l < far.size(); ++l) links[l].row = selection.far_row(l);
    Segments graph = selection.graph();
    std::vector<A> seg_val(graph.segments), edge_val(graph.edges);
    if (g.view.seg_val) selection.copy_segments(g.view.seg_val, seg_val.data(), sizeof(A), team);
    if (g.view.edge_val) selection.copy_edges(g.view.edge_val, edge_val.data(), sizeof(A), team);
    if (g.view.seg_val) graph.seg_val = seg_val.data();
    if (g.view.edge_val) graph.edge_val = edge_val.data();
    graph.whole = &g.view;
    pass(graph, selection.near_row(), &selection);
  };
  const int64_t count = int64_t(far.size());

  const auto x = random_state<T, I>(states.near, nodes, rank * features);
  g.each(true, [&](int64_t n, int64_t i, int64_t m, double a) {
    const int64_t from = near_place(m);
    if (from < 0 || !used[i]) return;
    each_weight(i, [&](size_t l, int64_t p, int64_t q, int64_t at) {
      const int64_t to = far_place(l, n);
      for (int64_t f = 0; to >= 0 && f < features; ++f) {
        const double value = a * get(x[(from * rank + p) * features + f]);
        want_out[l][(to * far[l] + q) * features + f] += w[l][place(l, at, f)] * value;
        want_dw[l][place(l, at, f)] += value * get(other[l][(to * far[l] + q) * features + f]);
      }
    });
  });
  const Cut<T> cut(x, some.own, rank * features);
  run(false, [&](const Segments& graph, RowMap near_row, const Selection*) {
    kernels.gather_mix(Type<T>::real, {graph, g.loops, cut.here.data(), rank, features, links.data(), count, team,
                                       near_row, groups, cut.halo});
  });
  for (size_t l = 0; l < far.size(); ++l) {
    for (int64_t k = 0; k < int64_t(dw[l].size()); ++k)
      if (!used[k / links[l].step % relations]) dw[l][k] = 0;  // of no meaning: self-loops may have added to it
    const int64_t width = far[l] * features;
    for (int64_t k = 0; links[l].written && k < int64_t(out[l].size()); ++k)
      if (!written[l][k / width] && !std::isnan(get(out[l][k]))) set(out[l][k], 0);
    compare(out[l], want_out[l], "gather_mix: out");
    compare(dw[l], want_dw[l], "gather_mix: dw");
  }

  for (const bool accumulate : {false, true}) {  // y is the near state
    const int64_t at_once = accumulate ? 2 : relations;
    auto y = random_state<T, I>(states.near, nodes, rank * features);
    auto want = start_of(y, accumulate);
    g.each(true, [&](int64_t n, int64_t i, int64_t m, double a) {
      const int64_t to = near_place(n);
      if (to < 0) return;
      each_weight(i, [&](size_t l, int64_t p, int64_t q, int64_t at) {
        const int64_t from = far_place(l, m);
        for (int64_t f = 0; from >= 0 && f < features; ++f)
          want[(to * rank + p) * features + f] +=
              a * w[l][place(l, at, f)] * get(other[l][(from * far[l] + q) * features + f]);
      });
    });
    std::vector<Cut<T>> cuts;
    for (size_t l = 0; l < far.size(); ++l) cuts.emplace_back(other[l], some.own, far[l] * features);
    std::vector<Link> from = links;
    for (size_t l = 0; l < far.size(); ++l) from[l].other = cuts[l].here.data(), from[l].halo = cuts[l].halo;
    run(true, [&](const Segments& graph, RowMap near_row, const Selection*) {
      for (size_t l = 0; l < far.size(); ++l) from[l].row = links[l].row;
      const int64_t size = graph.nodes * rank * features;
      std::vector<A> mixed(at_once * size), sums(sizeof(T) < sizeof(A) ? size : 0);
      kernels.mix_gather(Type<T>::real, {graph, g.loops, y.data(), accumulate, rank, features, from.data(), count,
                                         at_once, mixed.data(), sums.data(), team, near_row, groups});
    });
    compare(y, want, "mix_gather");
  }

  for (const bool accumulate : {false, true}) {  // without values
    std::vector<A> grad = random_numbers<A>(g.view.edges);
    auto want = start_of(grad, accumulate || !some.whole());
    int64_t e = 0;
    g.each(false, [&](int64_t n, int64_t i, int64_t m, double) {
      const int64_t from = near_place(m);
      each_weight(i, [&](size_t l, int64_t p, int64_t q, int64_t at) {
        const int64_t to = far_place(l, n);
        for (int64_t f = 0; from >= 0 && to >= 0 && f < features; ++f)
          want[e] += w[l][place(l, at, f)] * get(x[(from * rank + p) * features + f]) *
                     get(other[l][(to * far[l] + q) * features + f]);
      });
      ++e;
    });
    run(false, [&](Segments graph, RowMap, const Selection* selection) {
      graph.seg_val = graph.edge_val = nullptr;
      std::vector<A> sums(selection ? graph.edges : 0);
      kernels.edge_gradient(Type<T>::real, {graph, x.data(), rank, features, links.data(), count,
                                            selection ? sums.data() : grad.data(), accumulate, team, groups});
      if (selection) selection->add_edges(sums.data(), grad.data(), sizeof(A), team);
    });
    compare(grad, want, "edge_gradient");
  }
}

// Relations and rows are left out in all ways that differ.
template <class T, class I> void test_parts(const Kernels& kernels) {
  for (const int used : {0xff, 0x5})
    for (const int near_step : {0, 1, 2})
      for (const int far_step : {0, 1, 3})
        for (const bool near_compact : {false, true})
          for (const bool far_compact : {false, true}) {
            const Part part{used, near_step, far_step, near_compact, far_compact};
            test_kernels<T, I>(kernels, 1, 2, 1, 1, {2}, 3, 7, alone, part);
            test_kernels<T, I>(kernels, 23, 3, 2, 2, {2, 1, 3}, 9, near_step + 4, three_threads, part);
            test_kernels<T, I>(kernels, 9, 3, 2, 3, {1}, 16, far_step, alone, part);
          }
  if (sizeof(I) == 4)  // several chunks
    test_kernels<T, I>(kernels, 2000, 3, 4, 1, {2, 1}, 3, 7, three_threads, {0x5, 2, 3, false, true});
}

template <class T, class I> void test_shapes(const Kernels& kernels) {
  test_kernels<T, I>(kernels, 1, 1, 1, 1, {1}, 1, 0, alone);
  test_kernels<T, I>(kernels, 5, 2, 2, 1, {1}, 0, 4, alone);
  test_kernels<T, I>(kernels, 40, 3, 4, 2, {2, 2, 2}, 64, 1, three_threads);
  test_kernels<T, I>(kernels, 40, 3, 4, 3, {1, 5}, 33, 6, three_threads);
  test_kernels<T, I>(kernels, 30, 60, 1, 2, {3}, 9, 5, alone);
  test_kernels<T, I>(kernels, 20, 2, 3, 9, {4, 7, 2}, 17, 7, three_threads);
  test_kernels<T, I>(kernels, 20, 2, 3, 1, {1}, 257, 3, alone);
  for (const int64_t own : {0, 17, 40}) {
    test_kernels<T, I>(kernels, 40, 3, 4, 2, {2, 1}, 64, 1, three_threads, {.own = own});
    test_kernels<T, I>(kernels, 40, 3, 4, 3, {2}, 9, 2, alone, {.own = own});
  }
  if (sizeof(T) == 4 && sizeof(I) == 4) test_kernels<T, I>(kernels, 3000, 3, 4, 2, {1, 2}, 5, 5, three_threads);
}

// Borders between groups at two vectors, at one, anywhere; empty groups; single columns; all in one of three.
template <class T, class I> void test_groups(const Kernels& kernels) {
  const auto test = [&](int64_t rank, std::vector<int64_t> far, int options, std::vector<int64_t> ends) {
    const Part part{.used = 0x5, .near_step = 2, .far_step = 3, .ends = ends}, whole{.ends = ends};
    test_kernels<T, I>(kernels, 40, 3, 4, rank, far, ends.back(), options, three_threads, whole);
    test_kernels<T, I>(kernels, 40, 3, 4, rank, far, ends.back(), options, alone, part);
  };
  test(2, {2, 1, 2}, 5, {16, 32, 48, 64});
  test(1, {2, 3}, 6, {32, 32, 64, 76});
  test(2, {2, 5}, 7, {8, 40, 45});
  test(3, {4, 1}, 7, {0, 5, 17, 17, 33});
  test(2, {2}, 5, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  test(2, {1}, 4, {0, 32, 32});
  test(1, {1}, 4, {0, 0});
}

// ------------------------------------------------------------------------------------------ the rest

void test_check(const Kernels& kernels) {
  const auto damage = [&](auto change) {
    Graph<int32_t, float> g(10, 3, 4, false, false, false);
    change(g);
    return kernels.check(g.view, g.view.nodes, three_threads);
  };
  const auto none = [](auto&) {};
  CHECK(!damage(none), "a sound structure was refused");
  for (const int32_t bad : {-1, 10, INT32_MAX, INT32_MIN})
    CHECK(damage([=](auto& g) { g.col.back() = bad; }), "column %d", bad);
  for (const int32_t bad : {-1, 3, INT32_MAX, INT32_MIN})
    CHECK(damage([=](auto& g) { g.seg_rel.front() = bad; }), "relation %d", bad);
  for (const int32_t bad : {-1, INT32_MAX, INT32_MIN}) {
    CHECK(damage([=](auto& g) { g.row_ptr[4] = bad; }), "row_ptr %d", bad);
    CHECK(damage([=](auto& g) { g.seg_ptr[4] = bad; }), "seg_ptr %d", bad);
    CHECK(damage([=](auto& g) { g.row_ptr.front() = bad; }), "row_ptr[0] %d", bad);
    CHECK(damage([=](auto& g) { g.seg_ptr.back() = bad; }), "seg_ptr[S] %d", bad);
  }
}

void test_passes() {
  for (int round = 0; round < 200; ++round) {  // against every subset of the left side
    std::vector<std::pair<int64_t, int64_t>> edges;
    std::vector<int64_t> left(5), right(5);
    for (int64_t& x : left) x = below(10);
    for (int64_t& x : right) x = below(10);
    for (int64_t count = 1 + below(12); count > 0; --count) edges.emplace_back(below(5), below(5));
    const auto weight = [&](auto chosen) {
      int64_t sum = 0;
      std::vector<bool> rest(5);
      for (const auto& [u, v] : edges) rest[v] = rest[v] || !chosen(u);
      for (int64_t k = 0; k < 5; ++k) sum += chosen(k) * left[k] + rest[k] * right[k];
      return sum;
    };
    int64_t best = INT64_MAX;
    for (int bits = 0; bits < 32; ++bits) best = std::min(best, weight([&](int64_t u) { return bits >> u & 1; }));
    const std::vector<bool> cover = least_cover(edges, left, right);
    CHECK(weight([&](int64_t u) { return bool(cover[u]); }) == best, "round %d", round);
  }
  const GraphSize many{1000, 3, 1000000}, few{1000, 3, 500};
  using Plan = std::vector<bool>;
  const auto plan = [](const GraphSize& size, std::vector<int64_t> ranks, bool backward) {
    return mixed_first({size, size}, {size, size}, ranks, {0}, {1}, backward);
  };
  CHECK(plan(many, {8, 1}, false) == Plan{true}, "a narrow head");
  CHECK(plan(many, {8, 1}, true) == Plan{false}, "a narrow head, backward");
  CHECK(plan(many, {1, 8}, false) == Plan{false}, "a narrow tail");
  CHECK(plan(many, {1, 8}, true) == Plan{true}, "a narrow tail, backward");
  CHECK(plan(few, {8, 1}, false) == Plan{false}, "mixing costs more than gathering");
  const std::vector<GraphSize> all(3, many), leaving{many, few, few}, entering{few, many, few};
  CHECK((mixed_first(all, all, {2, 2, 2}, {0, 0, 1}, {1, 2, 2}, false) == Plan{false, false, false}), "equal ranks");
  CHECK((mixed_first(all, all, {1, 8, 1}, {0, 1}, {1, 2}, false) == Plan{false, true}), "a narrow sink");
  CHECK((mixed_first(leaving, entering, {1, 8, 1}, {0, 1}, {1, 2}, false) == Plan{false, false}), "of few edges");
}

// The copy holds the segments of some relations at some rows, in order, without edges from nodes that the near state
// lacks, and without rows to which nothing leads; values are copied, and sums of edges added back, by their numbers.
template <class I, class A>
void test_selection(int64_t nodes, int64_t relations, int64_t degree, int options, int used_bits, int near_step,
                    int far_step, Team team) {
  const Graph<I, A> g(nodes, relations, degree, options & 1, options & 2, false);
  Flags used(relations);
  for (int64_t i = 0; i < relations; ++i) used[i] = used_bits >> (i % 8) & 1;
  const std::vector<I> near = every<I>(near_step, nodes, 1), far = every<I>(far_step, nodes), more = every<I>(3, nodes);
  const bool mixed_first = options & 4;
  const Meeting states{rows_of(near, near_step == 1, !(options & 8)),
                       {rows_of(far, far_step == 1, true), rows_of(more, far_step == 1, options & 8)},
                       mixed_first,
                       bool(options & 16)};
  const Selection selection(g.view, used, states, true, team);
  const Segments& part = selection.graph();
  CHECK(part.relations == relations && part.wide == (sizeof(I) == 8), "another shape");

  const I *row_ptr = static_cast<const I*>(part.row_ptr), *seg_ptr = static_cast<const I*>(part.seg_ptr),
          *col = static_cast<const I*>(part.col), *node = static_cast<const I*>(part.node);
  std::vector<A> seg_val(g.view.seg_val ? part.segments : 0), edge_val(g.view.edge_val ? part.edges : 0);
  if (g.view.seg_val) selection.copy_segments(g.view.seg_val, seg_val.data(), sizeof(A), team);
  if (g.view.edge_val) selection.copy_edges(g.view.edge_val, edge_val.data(), sizeof(A), team);
  int64_t row = 0, s = 0, f = 0;
  std::vector<int64_t> from;  // where each edge of the copy was
  std::vector<I> rows;        // the nodes of the pass
  const bool all_rows = near_step == 1 && far_step == 1;
  const auto is_led_to = [&](int64_t n) {
    if (states.loops && place_of<I>(states.near, n) >= 0) return true;
    for (int64_t t = g.row_ptr[n]; t < g.row_ptr[n + 1]; ++t)
      for (int64_t e = g.seg_ptr[t]; used[g.seg_rel[t]] && e < g.seg_ptr[t + 1]; ++e)
        if (place_of<I>(states.near, g.col[e]) >= 0) return true;
    return false;
  };
  for (int64_t n = 0; n < nodes; ++n) {
    bool met = mixed_first && place_of<I>(states.near, n) >= 0;
    for (const StateRows& state : states.far) met = met || place_of<I>(state, n) >= 0;
    if (met && (mixed_first || all_rows || is_led_to(n))) rows.push_back(I(n));
  }
  const StateRows columns = mixed_first ? rows_of(rows, false, true) : states.near;
  bool same = part.nodes == int64_t(rows.size());
  for (; same && row < part.nodes; ++row) {
    const int64_t n = rows[row];
    same = row_ptr[row] == s && (node ? node[row] : row) == n;
    same = same && mapped<I>(selection.near_row(), row) == place_of<I>(states.near, n);
    for (size_t l = 0; l < states.far.size(); ++l)
      same = same && mapped<I>(selection.far_row(l), row) == place_of<I>(states.far[l], n);
    if (mixed_first && place_of<I>(states.near, n) < 0) continue;
    for (int64_t t = g.row_ptr[n]; t < g.row_ptr[n + 1]; ++t) {
      if (!used[g.seg_rel[t]]) continue;
      const int64_t begin = f;
      for (int64_t e = g.seg_ptr[t]; same && e < g.seg_ptr[t + 1]; ++e) {
        const int64_t place = place_of<I>(columns, g.col[e]);
        if (place < 0) continue;
        same = f < part.edges && col[f] == place && (edge_val.empty() || edge_val[f] == g.edge_val[e]);
        from.push_back(e);
        ++f;
      }
      if (f == begin) continue;
      same = same && s < part.segments && part.seg_rel[s] == g.seg_rel[t] && seg_ptr[s] == begin;
      same = same && (seg_val.empty() || seg_val[s] == g.seg_val[t]);
      ++s;
    }
  }
  CHECK(same && s == part.segments && f == part.edges && row_ptr[row] == s && seg_ptr[s] == f,
        "another copy, of %ld rows and %ld segments", long(part.nodes), long(part.segments));

  const std::vector<int64_t> counts = count_edges(g.view, team);
  std::vector<int64_t> edges(relations);
  for (size_t t = 0; t < g.seg_rel.size(); ++t) edges[g.seg_rel[t]] += g.seg_ptr[t + 1] - g.seg_ptr[t];
  CHECK(counts == edges, "another number of edges");

  const auto sums = random_numbers<A>(part.edges), before = random_numbers<A>(g.view.edges);
  auto grad = before, want = before;
  selection.add_edges(sums.data(), grad.data(), sizeof(A), team);
  for (size_t k = 0; k < from.size(); ++k) want[from[k]] += sums[k];
  CHECK(grad == want, "edges do not lead back");
}

template <class I, class A> void test_selections() {
  for (const int used : {0, 1, 0x55, 0xff})
    for (int options = 0; options < 32; ++options)
      for (const int near : {0, 1, 2})
        for (const int far : {0, 1, 5}) {
          test_selection<I, A>(1, 1, 1, options, used, near, far, alone);
          test_selection<I, A>(40, 3, 4, options, used, near, far, three_threads);
          test_selection<I, A>(30, 60, 1, options, used, near, far, alone);
        }
  for (int options = 0; options < 32; ++options)  // several chunks
    test_selection<I, A>(7000, 4, 2, options, 0x55, 2, 5, three_threads);
  test_selection<I, A>(0, 2, 1, 3, 1, 1, 1, alone);
  test_selection<I, A>(0, 2, 1, 3, 1, 2, 2, alone);
  test_selection<I, A>(5, 2, 0, 3, 1, 2, 1, alone);
}

// Against marks that spread until nothing changes.
template <class I> void test_needed(int64_t nodes, int64_t relations, int64_t degree, int used_bits, bool supported) {
  const Graph<I, float> g(nodes, relations, degree, false, false, false);
  Reach reach{g.view, g.view, Flags(relations), {0, 0, 1, 1}, {1, 2, 2, 3}, {}, 4};
  for (size_t e = 0; e < 4; ++e)
    for (int64_t i = 0; i < relations; ++i) reach.chosen.push_back(used_bits >> ((e + i) % 8) & 1);
  reach.has_loop[0] = 1;
  // The transpose, as a list of lists.
  std::vector<I> row_ptr{0}, seg_ptr{0}, col;
  std::vector<int32_t> seg_rel;
  for (int64_t n = 0; n < nodes; ++n) {
    for (int64_t i = 0; i < relations; ++i) {
      const size_t before = col.size();
      g.each(false, [&](int64_t row, int64_t rel, int64_t from, double) {
        if (from == n && rel == i) col.push_back(I(row));
      });
      if (col.size() == before) continue;
      seg_rel.push_back(int32_t(i));
      seg_ptr.push_back(I(col.size()));
    }
    row_ptr.push_back(I(seg_rel.size()));
  }
  reach.backward = g.view;
  reach.backward.segments = int64_t(seg_rel.size()), reach.backward.edges = int64_t(col.size());
  reach.backward.row_ptr = row_ptr.data(), reach.backward.seg_ptr = seg_ptr.data();
  reach.backward.seg_rel = seg_rel.data(), reach.backward.col = col.data();

  std::vector<int64_t> wanted, support;
  for (int64_t n = 0; n < nodes; n += 3) wanted.insert(wanted.begin(), {n, n});
  for (int64_t n = 0; n < nodes; n += 2) support.push_back(n);
  using Marks = std::vector<std::vector<char>>;
  Marks possible(4, std::vector<char>(nodes, !supported)), needed(4, std::vector<char>(nodes));
  for (const int64_t n : support) possible[0][n] = 1;
  for (const int64_t n : wanted) needed[3][n] = 1;
  const auto spread = [&](Marks& marks, bool forwards) {
    for (size_t e = 0; e < 4; ++e) {
      const auto uses = [&](int64_t i) { return reach.chosen[e * relations + i]; };
      auto &at_tail = marks[reach.tails[e]], &at_head = marks[reach.heads[e]];
      const auto join = [&](int64_t tail, int64_t head) {
        if (forwards) at_head[head] |= at_tail[tail];
        else if (at_head[head] && (reach.heads[e] == 3 || possible[reach.heads[e]][head])) at_tail[tail] = 1;
      };
      for (int64_t n = 0; n < nodes; ++n)
        if (uses(0)) join(n, n);
      g.each(false, [&](int64_t row, int64_t rel, int64_t from, double) {
        if (uses(rel)) join(from, row);
      });
    }
  };
  for (int round = 0; round < 4; ++round) spread(possible, true);
  for (int round = 0; round < 4; ++round) spread(needed, false);
  const auto got = needed_rows<I>(reach, wanted, supported ? &support : nullptr);
  for (size_t k = 0; k < 4; ++k) {
    std::vector<I> want;
    for (int64_t n = 0; n < nodes; ++n)
      if (needed[k][n] && (k == 3 || possible[k][n])) want.push_back(I(n));
    CHECK(got[k] == want, "state %ld needs %ld rows, got %ld", long(k), long(want.size()), long(got[k].size()));
  }
}

template <class I> void test_needs() {
  for (const int used : {0, 1, 0x2d, 0xff})
    for (const bool supported : {false, true}) {
      test_needed<I>(0, 2, 1, used, supported);
      test_needed<I>(1, 1, 1, used, supported);
      test_needed<I>(50, 3, 2, used, supported);
      test_needed<I>(80, 2, 1, used, supported);
    }
}

void test_arena() {
  std::vector<void*> blocks;
  for (int round = 0; round < 3; ++round) {
    for (const size_t bytes : {size_t(1), size_t(3) << 20, size_t(5) << 20}) {
      blocks.push_back(acquire_block(bytes));
      std::memset(blocks.back(), round, bytes);
    }
    for (void* block : blocks) release_block(block);
    blocks.clear();
  }
  void* first = acquire_block(7 << 20);
  release_block(first);
  void* again = acquire_block(7 << 20);
  CHECK(first == again, "a block that was released is used again");
  void* other = acquire_block(7 << 20);
  CHECK(other != again, "a block in use is not");
  release_block(again), release_block(other);
}

}  // namespace

int main() {
  bool runnable;
  for (size_t i = 0; const Kernels* kernels = built_kernels(i, &runnable); ++i) {
    std::printf("%s%s\n", kernels->isa, runnable ? "" : ": not on this machine");
    if (!runnable) continue;
    CHECK(use_kernels(kernels->isa), "%s", kernels->isa);
    test_shapes<float, int32_t>(*kernels);
    test_groups<float, int32_t>(*kernels);
    test_parts<float, int32_t>(*kernels);
    test_shapes<float, int64_t>(*kernels);
    test_groups<float, int64_t>(*kernels);
    test_parts<float, int64_t>(*kernels);
    test_shapes<double, int32_t>(*kernels);
    test_groups<double, int32_t>(*kernels);
    test_parts<double, int32_t>(*kernels);
    test_shapes<Half, int32_t>(*kernels);
    test_groups<Half, int32_t>(*kernels);
    test_parts<Half, int32_t>(*kernels);
    test_check(*kernels);
  }
  CHECK(!use_kernels("mmx"), "an unknown instruction set");
  test_passes();
  test_selections<int32_t, float>();
  test_selections<int64_t, double>();
  test_needs<int32_t>();
  test_needs<int64_t>();
  test_arena();
  std::printf("%d failures\n", failures);
  return failures != 0;
}
