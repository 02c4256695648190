// The operators for CPU tensors: checks of the arguments (see library.cpp for what they mean) and the order of the
// passes. An edge of the DAG is served by a pass at one of its ends: see passes.h for which.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "cpu/needed.h"
#include "cpu/select.h"
#include "cpu/share.h"
#include "ops_cpu.h"
#include "passes.h"
#include "selection_cache.h"

namespace {

using namespace tensus;

// ---------------------------------------------------------------------------------------------- arguments

// The links that one pass serves, the states at their far ends, and the relations that they use.
struct Pass {
  std::vector<Link> links;
  Ints far;
  Flags used;
};

// The arguments, their indices checked too.
class CpuProblem : public Problem {
 public:
  CpuProblem(const Tensor& h, const Tensor& w, const Ints& ranks, const Ints& tails, const Ints& heads,
             const MaybeInts& flags, const MaybeInts& group_sizes)
      : Problem(
            h, w, ranks, tails, heads, flags, group_sizes, [](const Tensor& t) { return t.is_cpu(); }, "CPU"),
        real(real_of(h)) {}

  void set_graph(const Tensors& forward, const MaybeTensor& seg_val, const MaybeTensor& edge_val,
                 const MaybeTensor& loop, const MaybeTensor& seg_loop) {
    Problem::set_graph(forward, seg_val, edge_val, loop, seg_loop);
    check_indices(graph, "forward", graph.nodes);
    if (!loops.seg_loop && loops.loop && all_zero(*loop)) loops.loop = nullptr;
  }

  void set_transposed(const Tensors& backward, const MaybeTensor& seg_val, const MaybeTensor& edge_val) {
    Problem::set_transposed(backward, seg_val, edge_val);
    check_indices(transposed, "backward", transposed.nodes);
  }

  void set_needed(const Tensors& rows, const Tensors& forward, const Tensors& backward) {
    if (rows.empty()) return;
    Problem::set_needed(rows);
    for (const Tensor& r : rows) graph.wide ? check_ascending<int64_t>(r) : check_ascending<int32_t>(r);
    cache = find_cache(rows[0]);
    if (cache && !cache->serves(rows, forward, backward)) cache = nullptr;
  }

  // Which rows of state k there are.
  StateRows state_rows(int64_t k) const {
    if (needed.empty() || needed[k].numel() == nodes) return {};
    return {false, needed[k].const_data_ptr(), needed[k].numel(), k > 0};
  }

  Tensor new_state(int64_t k) const { return tensus::new_state(h, rows(k), dag.ranks[k], features); }

  // Edge e in a pass, seen from its tail or from its head.
  Link& serve(int64_t e, bool from_tail, Pass& pass) const {
    use(e, pass.used);
    pass.far.push_back(from_tail ? dag.heads[e] : dag.tails[e]);
    return pass.links.emplace_back(link(e, from_tail));
  }

  // Adds to `used` what edge e uses.
  void use(int64_t e, Flags& used) const {
    used.resize(relations);
    for (int64_t i = 0; i < relations; ++i)
      if (chosen.empty() || chosen[e * relations + i]) used[i] = 1;
  }

  const Real real;
  std::shared_ptr<SelectionCache> cache;  // of the needed rows, if they have one

 private:
  template <class I> void check_ascending(const Tensor& rows) const {
    const I* const row = rows.const_data_ptr<I>();
    const int64_t count = rows.numel();
    const bool in_range = count == 0 || (row[0] >= 0 && row[count - 1] < nodes);
    STD_TORCH_CHECK(in_range && std::adjacent_find(row, row + count, std::greater_equal<I>()) == row + count,
                    "needed must hold ascending rows in [0, ", nodes, ")");
  }
};

// Which rows of a state are written, where not all rows are needed: the first pass that leads to a row overwrites it.
class Written {
 public:
  explicit Written(const CpuProblem& problem) : problem_(problem), rows_(problem.dag.ranks.size()) {}

  // State k, which is new, is to be finished.
  void expect(int64_t k) {
    if (!problem_.needed.empty()) rows_[k].resize(problem_.rows(k));
  }

  // `link` writes to state k.
  void mark(Link& link, int64_t k) {
    expect(k);
    if (!rows_[k].empty()) link.written = rows_[k].data();
  }

  // Sets to zero the rows of state k that no pass has led to; false where these are not known.
  bool finish(const Tensor& state, int64_t k) {
    const int64_t bytes = problem_.dag.ranks[k] * problem_.features * int64_t(state.element_size());
    char* const memory = static_cast<char*>(state.mutable_data_ptr());
    const Flags marks = std::move(rows_[k]);
    const Chunks chunks(int64_t(marks.size()));
    share(torch_team, chunks.count, [&](int64_t chunk) {
      for (int64_t n = chunks.first(chunk); n < chunks.first(chunk + 1); ++n)
        if (!marks[n]) std::memset(memory + n * bytes, 0, size_t(bytes));
    });
    rows_[k].clear();
    return !marks.empty();
  }

 private:
  const CpuProblem& problem_;
  std::vector<Flags> rows_;  // of every state that some pass leads to, until it is finished
};

constexpr int64_t kLeast = 8;  // a copy pays only if it leaves out at least one edge in this many

// One direction of the graph, and the passes over it. Each reads the relations that its links use, at the rows that its
// states have: in the whole structure where these are all of it, or almost, else in a copy, which like passes share.
class Structure {
 public:
  // With `keep_edges`, edge_gradient can be called.
  Structure(const CpuProblem& problem, const Segments& whole, bool keep_edges = false)
      : problem_(problem), whole_(whole), keep_edges_(keep_edges || whole.edge_val) {}

  // The passes at state k, which is x or y.
  void gather_mix(const Tensor& x, int64_t k, Pass pass) {
    Part* const on = part(k, pass, false);
    if (!on) return;
    kernels().gather_mix(
        problem_.real, {on->graph, problem_.loops, x.const_data_ptr(), problem_.dag.ranks[k], problem_.features,
                        pass.links.data(), int64_t(pass.links.size()), torch_team, on->near_row(), problem_.groups()});
  }

  void mix_gather(const Tensor& y, int64_t k, bool accumulate, Pass pass) {
    Part* const on = part(k, pass, true);
    if (!on) return;
    const int64_t rank = problem_.dag.ranks[k], at_once = mixed_at_once(pass.links, rank, whole_.relations);
    const bool rounded = problem_.h.element_size() < problem_.w.element_size();
    const auto workspace = [&](int64_t width) {
      return new_state(problem_.w, on->graph.nodes, width, problem_.features);
    };
    const Tensor mixed = workspace(at_once * rank), sums = workspace(rounded ? rank : 0);
    kernels().mix_gather(problem_.real,
                         {on->graph, problem_.loops, y.mutable_data_ptr(), accumulate, rank, problem_.features,
                          pass.links.data(), int64_t(pass.links.size()), at_once, mixed.mutable_data_ptr(),
                          sums.mutable_data_ptr(), torch_team, on->near_row(), problem_.groups()});
  }

  void edge_gradient(const Tensor& x, int64_t k, Pass pass, const Tensor& grad) {
    Part* const on = part(k, pass, false);
    if (!on) return;
    const Tensor sums = on->selection ? torch::stable::new_empty(grad, {on->graph.edges}) : grad;
    kernels().edge_gradient(problem_.real, {on->graph, x.const_data_ptr(), problem_.dag.ranks[k], problem_.features,
                                            pass.links.data(), int64_t(pass.links.size()), sums.mutable_data_ptr(),
                                            !on->selection, torch_team, problem_.groups()});
    if (on->selection)
      on->selection->add_edges(sums.const_data_ptr(), grad.mutable_data_ptr(), grad.element_size(), torch_team);
  }

  std::vector<bool> mixed_first(bool backward) {
    const Dag& dag = problem_.dag;
    std::vector<Flags> at_tail(dag.ranks.size(), Flags(whole_.relations)), at_head(at_tail);
    for (int64_t e = 0; e < dag.edges(); ++e) {
      problem_.use(e, at_tail[dag.tails[e]]);
      problem_.use(e, at_head[dag.heads[e]]);
    }
    return tensus::mixed_first(sizes(at_tail), sizes(at_head), dag.ranks, dag.tails, dag.heads, backward);
  }

 private:
  struct Part {
    explicit Part(const Segments& whole) : graph(whole) {}
    Part(const CpuProblem& problem, const Segments& whole, std::shared_ptr<const Selection> some)
        : selection(std::move(some)), graph(selection->graph()) {
      graph.whole = &whole;
      const size_t bytes = problem.w.element_size();
      if (whole.seg_val) {
        seg_val = torch::stable::new_empty(problem.w, {graph.segments});
        selection->copy_segments(whole.seg_val, seg_val->mutable_data_ptr(), bytes, torch_team);
        graph.seg_val = seg_val->const_data_ptr();
      }
      if (whole.edge_val) {
        edge_val = torch::stable::new_empty(problem.w, {graph.edges});
        selection->copy_edges(whole.edge_val, edge_val->mutable_data_ptr(), bytes, torch_team);
        graph.edge_val = edge_val->const_data_ptr();
      }
    }
    Part(const Part&) = delete;  // its graph points to its values

    RowMap near_row() const { return selection ? selection->near_row() : nullptr; }

    std::shared_ptr<const Selection> selection;
    Segments graph;
    MaybeTensor seg_val, edge_val;
  };

  // Where a pass works, once its links know their rows; null where it has nothing to do.
  Part* part(int64_t k, Pass& pass, bool mixed_first) {
    if (pass.links.empty()) return nullptr;
    const bool loops = problem_.loops.loop;
    Meeting states{problem_.state_rows(k), {}, mixed_first, loops};
    bool all_rows = states.near.all;
    for (const int64_t far : pass.far) {
      states.far.push_back(problem_.state_rows(far));
      all_rows &= states.far.back().all;
    }
    if (all_rows && kLeast * (whole_.edges - edges(pass.used)) <= whole_.edges)
      return &parts_.try_emplace({}, whole_).first->second;
    SelectionKey key{is_transposed(), pass.used, {}, false, loops, keep_edges_, bool(whole_.seg_val)};
    if (!all_rows) {
      key.states = pass.far;
      key.states.push_back(k);
      key.mixed_first = mixed_first;
    }
    auto found = parts_.find(key);
    if (found == parts_.end()) {
      const auto select = [&] {
        return std::make_shared<const Selection>(whole_, pass.used, states, keep_edges_, torch_team);
      };
      const bool keep = problem_.cache && !all_rows;
      found = parts_.try_emplace(key, problem_, whole_, keep ? problem_.cache->fetch(key, select) : select()).first;
    }
    Part& part = found->second;
    for (size_t l = 0; !all_rows && l < pass.links.size(); ++l) pass.links[l].row = part.selection->far_row(l);
    return part.graph.nodes ? &part : nullptr;
  }

  bool is_transposed() const { return &whole_ == &problem_.transposed; }

  int64_t edges(const Flags& used) {
    if (problem_.chosen.empty()) return whole_.edges;
    const auto count = [&] { return count_edges(whole_, torch_team); };
    if (counts_.empty()) counts_ = problem_.cache ? problem_.cache->edges(is_transposed(), count) : count();
    int64_t sum = 0;
    for (int64_t i = 0; i < whole_.relations; ++i) sum += used[i] ? counts_[i] : 0;
    return sum;
  }

  std::vector<GraphSize> sizes(const std::vector<Flags>& used) {
    std::vector<GraphSize> sizes;
    for (const Flags& u : used) sizes.push_back({whole_.nodes, std::count(u.begin(), u.end(), 1), edges(u)});
    return sizes;
  }

  const CpuProblem& problem_;
  const Segments& whole_;
  const bool keep_edges_;
  Ints counts_;  // the edges of each relation, once they are asked for
  std::map<SelectionKey, Part> parts_;
};

// ---------------------------------------------------------------------------------------------- forward

// The states 1 .. K. Node by node: what is mixed first at a node completes its state, which is then passed on.
Tensors propagate(const Tensor& h, const Tensor& w, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
                  const MaybeTensor&, const MaybeTensor&, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                  const Tensors& forward, const Tensors& backward, const Ints& ranks, const Ints& tails,
                  const Ints& heads, const MaybeInts& chosen, const Tensors& needed, const MaybeInts& group_sizes) {
  CpuProblem problem(h, w, ranks, tails, heads, chosen, group_sizes);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  problem.set_needed(needed, forward, backward);
  Structure graph(problem, problem.graph);
  const std::vector<bool> mix_first = graph.mixed_first(false);

  Tensors states{problem.h};
  for (int64_t k = 1; k <= dag.last(); ++k) states.push_back(problem.new_state(k));
  std::vector<bool> written(states.size());
  Written rows(problem);

  for (int64_t k = 0; k <= dag.last(); ++k) {
    Pass in, out;
    for (int64_t e = 0; e < dag.edges(); ++e) {
      if (dag.heads[e] == k && mix_first[e]) {
        Link& link = problem.serve(e, false, in);
        link.other = states[dag.tails[e]].const_data_ptr();
      }
      if (dag.tails[e] == k && !mix_first[e]) {
        Link& link = problem.serve(e, true, out);
        link.out = states[dag.heads[e]].mutable_data_ptr();
        link.accumulate = written[dag.heads[e]];
        written[dag.heads[e]] = true;
        rows.mark(link, dag.heads[e]);
      }
    }
    rows.finish(states[k], k);
    graph.mix_gather(states[k], k, written[k], in);
    graph.gather_mix(states[k], k, out);
  }
  states.erase(states.begin());
  return states;
}

// ---------------------------------------------------------------------------------------------- backward

// The gradients of h, w and edge_val (empty where not needed), given those of some states. The states' own gradients
// are completed node by node from the sink: first what is mixed first, then passed on to the tails.
std::tuple<Tensor, Tensor, Tensor> propagate_backward(
    const Tensors& grads, const Ints& grad_nodes, const Tensors& states, const Tensor& h, const Tensor& w,
    const MaybeTensor& edge_val, const MaybeTensor& seg_val, const MaybeTensor& back_edge_val,
    const MaybeTensor& back_seg_val, const MaybeTensor& loop, const MaybeTensor& seg_loop, const Tensors& forward,
    const Tensors& backward, const Ints& ranks, const Ints& tails, const Ints& heads, const MaybeInts& chosen,
    const Tensors& needed, const MaybeInts& group_sizes, bool need_h, bool need_w, bool need_values) {
  CpuProblem problem(h, w, ranks, tails, heads, chosen, group_sizes);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  problem.set_needed(needed, forward, backward);
  problem.set_transposed(backward, back_seg_val, back_edge_val);
  Structure graph(problem, problem.graph, need_values), transposed(problem, problem.transposed);
  const std::vector<bool> mix_first = transposed.mixed_first(true);

  const Tensors state = problem.check_states(states);
  Gradients grad(problem, grads, grad_nodes, need_h, [&](int64_t k) { return problem.new_state(k); });
  const std::vector<bool> given = grad.written;
  Written rows(problem);
  if (need_h) rows.expect(0);

  Tensor dw = torch::stable::new_zeros(problem.w, {need_w ? problem.w.numel() : 0});
  const Tensor dvalues = torch::stable::new_zeros(problem.w, {need_values ? problem.graph.edges : 0});
  const auto add_dw = [&](Link& link, int64_t e, const Tensor& other) {
    if (!need_w) return;
    link.other = other.const_data_ptr();
    link.dw = problem.weight(dw, e);
  };

  for (int64_t k = dag.last(); k >= 0; --k) {
    Pass to_tails, mixed, mixed_dw, values;
    for (int64_t e = 0; e < dag.edges(); ++e) {
      const int64_t j = dag.tails[e], head = dag.heads[e];
      if (head == k && grad.present[k] && !mix_first[e] && (grad.of[j] || need_w)) {
        Link& link = problem.serve(e, false, to_tails);
        grad.add(link, j);
        if (link.out && !given[j]) rows.mark(link, j);
        add_dw(link, e, state[j]);
      }
      if (j == k && grad.present[head]) {
        if (need_values) problem.serve(e, true, values).other = grad.of[head]->const_data_ptr();
        if (!mix_first[e]) continue;
        if (grad.of[k]) problem.serve(e, true, mixed).other = grad.of[head]->const_data_ptr();
        if (need_w) add_dw(problem.serve(e, true, mixed_dw), e, *grad.of[head]);
      }
    }
    if (grad.of[k] && rows.finish(*grad.of[k], k)) grad.written[k] = true;
    if (!mixed.links.empty()) {
      transposed.mix_gather(*grad.of[k], k, grad.written[k], mixed);
      grad.written[k] = true;
    }
    graph.gather_mix(state[k], k, mixed_dw);
    graph.edge_gradient(state[k], k, values, dvalues);
    if (!to_tails.links.empty()) transposed.gather_mix(*grad.of[k], k, to_tails);
  }
  if (need_w) problem.clear_unused(dw);
  return {grad.of_h(problem, need_h), dw, dvalues};
}

// ---------------------------------------------------------------------------------------------- needed rows

Ints nodes_of(const Tensor& ids, const char* name, int64_t nodes) {
  const int64_t* const id = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i)
    STD_TORCH_CHECK(0 <= id[i] && id[i] < nodes, name, " must lie in [0, ", nodes, "), got ", id[i]);
  return Ints(id, id + ids.numel());
}

Flags find_loops(const MaybeTensor& loop, const MaybeTensor& seg_loop, const Segments& g) {
  Flags found(g.relations);
  const auto find = [&]<class A>() {
    for (int64_t i = 0; loop && i < g.relations; ++i) found[i] |= loop->const_data_ptr<A>()[i] != 0;
    for (int64_t s = 0; seg_loop && s < g.segments; ++s) found[g.seg_rel[s]] |= seg_loop->const_data_ptr<A>()[s] != 0;
  };
  if (loop) loop->scalar_type() == ScalarType::Double ? find.operator()<double>() : find.operator()<float>();
  return found;
}

template <class I> Tensors as_tensors(const std::vector<std::vector<I>>& lists, const Tensor& like) {
  Tensors tensors;
  for (const std::vector<I>& list : lists) {
    const ScalarType index = sizeof(I) == sizeof(int64_t) ? ScalarType::Long : ScalarType::Int;
    const int64_t count = int64_t(list.size());
    tensors.push_back(tensors.empty() ? new_rows_with_cache(like, count, index)
                                      : torch::stable::new_empty(like, {count}, index));
    std::copy(list.begin(), list.end(), static_cast<I*>(tensors.back().mutable_data_ptr()));
  }
  return tensors;
}

// The rows of every state that matter for some rows of the last one, see cpu/needed.h.
Tensors find_needed(const Tensor& rows, const MaybeTensor& support, const MaybeTensor& loop,
                    const MaybeTensor& seg_loop, const Tensors& forward, const Tensors& backward, const Ints& tails,
                    const Ints& heads, const MaybeInts& chosen, int64_t states, int64_t relations) {
  const Dag dag(Ints(std::max<int64_t>(states, 0), 1), tails, heads);
  Checks checks(rows, [](const Tensor& t) { return t.is_cpu(); });
  checks.check_vector(rows, "rows", ScalarType::Long, rows.numel());
  if (support) checks.check_vector(*support, "support", ScalarType::Long, support->numel());
  STD_TORCH_CHECK(!forward.empty() && forward[0].dim() == 1 && forward[0].numel() >= 1, "forward must hold row_ptr");
  STD_TORCH_CHECK(relations >= 0 && relations <= INT32_MAX, "relations must be a number of relations");
  checks.nodes = forward[0].numel() - 1, checks.relations = relations;
  if (loop && loop->scalar_type() == ScalarType::Double) checks.sums = ScalarType::Double;
  Reach reach{checks.check_structure(forward, "forward", {}, {}), {}, {}, tails, heads, {}, states};
  check_indices(reach.forward, "forward", reach.forward.nodes);
  checks.check_values(loop, "loop", relations);
  checks.check_values(seg_loop, "seg_loop", reach.forward.segments);
  reach.has_loop = find_loops(loop, seg_loop, reach.forward);
  if (support) {
    reach.backward = checks.check_structure(backward, "backward", {}, {});
    STD_TORCH_CHECK(reach.backward.wide == reach.forward.wide, "forward and backward must have the same index type");
    check_indices(reach.backward, "backward", reach.backward.nodes);
  }
  if (chosen) reach.chosen = check_choices(*chosen, dag.edges() * relations);
  const Ints wanted = nodes_of(rows, "rows", checks.nodes),
             non_zero = support ? nodes_of(*support, "support", checks.nodes) : Ints();
  const Ints* const source = support ? &non_zero : nullptr;
  if (reach.forward.wide) return as_tensors(needed_rows<int64_t>(reach, wanted, source), rows);
  return as_tensors(needed_rows<int32_t>(reach, wanted, source), rows);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) {
  m.impl("propagate", TORCH_BOX(&propagate));
  m.impl("propagate_backward", TORCH_BOX(&propagate_backward));
  m.impl("needed_rows", TORCH_BOX(&find_needed));
}
