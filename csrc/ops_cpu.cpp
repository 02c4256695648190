// The operators for CPU tensors: checks of the arguments (see library.cpp for what they mean) and the order of the
// passes. An edge of the DAG is served by a pass at one of its ends: see passes.h for which.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "cpu/arena.h"
#include "cpu/select.h"
#include "passes.h"
#include "team.h"

namespace {

using namespace tensus;

// ---------------------------------------------------------------------------------------------- memory

Tensor new_state(const Tensor& like, int64_t nodes, int64_t rank, int64_t features) {
  const int64_t bytes = nodes * rank * features * int64_t(like.element_size());
  if (bytes < int64_t(kLarge)) return torch::stable::new_empty(like, {nodes, rank, features});
  return torch::stable::from_blob(acquire_block(size_t(bytes)), {nodes, rank, features}, {rank * features, features, 1},
                                  like.device(), like.scalar_type(), release_block);
}

// ---------------------------------------------------------------------------------------------- arguments

Real real_of(const Tensor& h) {
  switch (h.scalar_type()) {
    case ScalarType::Float: return Real::f32;
    case ScalarType::Double: return Real::f64;
    case ScalarType::BFloat16: return Real::bf16;
    default: STD_TORCH_CHECK(false, "h must be float32, float64 or bfloat16");
  }
}

bool all_zero(const Tensor& t) {
  const auto zeros = [n = t.numel()](const auto* x) { return std::all_of(x, x + n, [](auto v) { return v == 0; }); };
  return t.scalar_type() == ScalarType::Double ? zeros(t.const_data_ptr<double>()) : zeros(t.const_data_ptr<float>());
}

// The links that one pass serves, and the relations that they use.
struct Pass {
  std::vector<Link> links;
  Flags used;
};

// The arguments, their indices checked too.
class CpuProblem : public Problem {
 public:
  CpuProblem(const Tensor& h, const Tensor& w, const Ints& ranks, const Ints& tails, const Ints& heads,
             const MaybeInts& flags)
      : Problem(
            h, w, ranks, tails, heads, flags, [](const Tensor& t) { return t.is_cpu(); }, "CPU"),
        real(real_of(h)) {}

  void set_graph(const Tensors& forward, const MaybeTensor& seg_val, const MaybeTensor& edge_val,
                 const MaybeTensor& loop, const MaybeTensor& seg_loop) {
    Problem::set_graph(forward, seg_val, edge_val, loop, seg_loop);
    check_indices(graph, "forward");
    if (!loops.seg_loop && loops.loop && all_zero(*loop)) loops.loop = nullptr;
  }

  void set_transposed(const Tensors& backward, const MaybeTensor& seg_val, const MaybeTensor& edge_val) {
    Problem::set_transposed(backward, seg_val, edge_val);
    check_indices(transposed, "backward");
  }

  Tensor new_state(int64_t k) const { return ::new_state(h, nodes, dag.ranks[k], features); }

  // Edge e in a pass, seen from its tail or from its head.
  Link& serve(int64_t e, bool from_tail, Pass& pass) const {
    use(e, pass.used);
    return pass.links.emplace_back(link(e, from_tail));
  }

  // Adds to `used` what edge e uses.
  void use(int64_t e, Flags& used) const {
    used.resize(relations);
    for (int64_t i = 0; i < relations; ++i)
      if (chosen.empty() || chosen[e * relations + i]) used[i] = 1;
  }

  const Real real;

 private:
  static void check_indices(const Segments& g, const char* name) {
    const char* problem = kernels().check(g, torch_team);
    STD_TORCH_CHECK(!problem, name, ": ", problem);
  }
};

// The segments of each relation, for mix_gather; sorted at the first use.
class ByRelation {
 public:
  explicit ByRelation(const CpuProblem& problem, const Segments& g) : problem_(problem), g_(g) {}

  void mix_gather(const Tensor& y, int64_t rank, bool accumulate, const std::vector<Link>& links) {
    if (rel_ptr_.empty()) prepare();
    const Tensor mixed = workspace(rank), sums = workspace(problem_.real == Real::bf16 ? rank : 0);
    kernels().mix_gather(problem_.real,
                         {g_, problem_.loops, rel_ptr_.data(), order_.data(), order_row_.data(), y.mutable_data_ptr(),
                          accumulate, rank, problem_.features, links.data(), int64_t(links.size()),
                          mixed.mutable_data_ptr(), sums.mutable_data_ptr(), torch_team});
  }

 private:
  Tensor workspace(int64_t rank) const { return new_state(problem_.w, problem_.nodes, rank, problem_.features); }

  void prepare() {
    rel_ptr_.assign(g_.relations + 1, 0);
    for (int64_t s = 0; s < g_.segments; ++s) ++rel_ptr_[g_.seg_rel[s] + 1];
    std::partial_sum(rel_ptr_.begin(), rel_ptr_.end(), rel_ptr_.begin());
    order_.resize(g_.segments);
    order_row_.resize(g_.segments);
    Ints next(rel_ptr_);
    const auto row_end = [this](int64_t n) {
      return g_.wide ? static_cast<const int64_t*>(g_.row_ptr)[n + 1] : static_cast<const int32_t*>(g_.row_ptr)[n + 1];
    };
    for (int64_t n = 0, s = 0; n < g_.nodes; ++n)
      for (; s < row_end(n); ++s) {
        const int64_t at = next[g_.seg_rel[s]]++;
        order_[at] = s;
        order_row_[at] = n;
      }
  }

  const CpuProblem& problem_;
  const Segments& g_;
  Ints rel_ptr_, order_, order_row_;
};

constexpr int64_t kLeast = 8;  // a copy pays only if it leaves out at least one edge in this many

// One direction of the graph, and the passes over it. Each reads the relations that its links use: in the whole
// structure where these are all of it, or almost, else in a copy, which passes of the same relations share.
class Structure {
 public:
  Structure(const CpuProblem& problem, const Segments& whole) : problem_(problem), whole_(whole) {}

  void gather_mix(const Tensor& x, int64_t rank, const Pass& pass) {
    if (pass.links.empty()) return;
    kernels().gather_mix(problem_.real, {part(pass.used).graph, problem_.loops, x.const_data_ptr(), rank,
                                         problem_.features, pass.links.data(), int64_t(pass.links.size()), torch_team});
  }

  void mix_gather(const Tensor& y, int64_t rank, bool accumulate, const Pass& pass) {
    if (pass.links.empty()) return;
    part(pass.used).by_relation.mix_gather(y, rank, accumulate, pass.links);
  }

  void edge_gradient(const Tensor& x, int64_t rank, const Pass& pass, const Tensor& grad) {
    if (pass.links.empty()) return;
    const Part& on = part(pass.used);
    const Tensor sums = on.selection ? torch::stable::new_empty(grad, {on.graph.edges}) : grad;
    kernels().edge_gradient(problem_.real,
                            {on.graph, x.const_data_ptr(), rank, problem_.features, pass.links.data(),
                             int64_t(pass.links.size()), sums.mutable_data_ptr(), !on.selection, torch_team});
    if (on.selection) on.selection->add_back(sums.const_data_ptr(), grad.mutable_data_ptr());
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
    Part(const CpuProblem& problem, const Segments& whole) : graph(whole), by_relation(problem, graph) {}
    Part(const CpuProblem& problem, const Counted& from, const Flags& used)
        : selection(std::in_place, from, used, problem.w.element_size()), graph(selection->graph()),
          by_relation(problem, graph) {}
    Part(const Part&) = delete;  // its parts point to each other

    std::optional<Selection> selection;
    const Segments graph;
    ByRelation by_relation;
  };

  Part& part(Flags used) {
    if (kLeast * (whole_.edges - edges(used)) < whole_.edges || whole_.edges == 0) {
      used.clear();
      return parts_.try_emplace(used, problem_, whole_).first->second;
    }
    for (int64_t i = 0; i < whole_.relations; ++i) used[i] = used[i] && counted_->edges(i) > 0;
    return parts_.try_emplace(used, problem_, *counted_, used).first->second;
  }

  int64_t edges(const Flags& used) {
    if (problem_.chosen.empty()) return whole_.edges;
    if (!counted_) counted_.emplace(whole_, torch_team);
    int64_t sum = 0;
    for (int64_t i = 0; i < whole_.relations; ++i) sum += used[i] ? counted_->edges(i) : 0;
    return sum;
  }

  std::vector<GraphSize> sizes(const std::vector<Flags>& used) {
    std::vector<GraphSize> sizes;
    for (const Flags& u : used) sizes.push_back({whole_.nodes, std::count(u.begin(), u.end(), 1), edges(u)});
    return sizes;
  }

  const CpuProblem& problem_;
  const Segments& whole_;
  std::optional<Counted> counted_;
  std::map<Flags, Part> parts_;
};

// ---------------------------------------------------------------------------------------------- forward

// The states 1 .. K. Node by node: what is mixed first at a node completes its state, which is then passed on.
Tensors propagate(const Tensor& h, const Tensor& w, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
                  const MaybeTensor&, const MaybeTensor&, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                  const Tensors& forward, const Tensors&, const Ints& ranks, const Ints& tails, const Ints& heads,
                  const MaybeInts& chosen) {
  CpuProblem problem(h, w, ranks, tails, heads, chosen);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  Structure graph(problem, problem.graph);
  const std::vector<bool> mix_first = graph.mixed_first(false);

  Tensors states{problem.h};
  for (int64_t k = 1; k <= dag.last(); ++k) states.push_back(problem.new_state(k));
  std::vector<bool> written(states.size());

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
      }
    }
    graph.mix_gather(states[k], dag.ranks[k], written[k], in);
    graph.gather_mix(states[k], dag.ranks[k], out);
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
    bool need_h, bool need_w, bool need_values) {
  CpuProblem problem(h, w, ranks, tails, heads, chosen);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  problem.set_transposed(backward, back_seg_val, back_edge_val);
  Structure graph(problem, problem.graph), transposed(problem, problem.transposed);
  const std::vector<bool> mix_first = transposed.mixed_first(true);

  const Tensors state = problem.check_states(states);
  Gradients grad(problem, grads, grad_nodes, need_h, [&](int64_t k) { return problem.new_state(k); });

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
        add_dw(link, e, state[j]);
      }
      if (j == k && grad.present[head]) {
        if (need_values) problem.serve(e, true, values).other = grad.of[head]->const_data_ptr();
        if (!mix_first[e]) continue;
        if (grad.of[k]) problem.serve(e, true, mixed).other = grad.of[head]->const_data_ptr();
        if (need_w) add_dw(problem.serve(e, true, mixed_dw), e, *grad.of[head]);
      }
    }
    if (!mixed.links.empty()) {
      transposed.mix_gather(*grad.of[k], dag.ranks[k], grad.written[k], mixed);
      grad.written[k] = true;
    }
    graph.gather_mix(state[k], dag.ranks[k], mixed_dw);
    graph.edge_gradient(state[k], dag.ranks[k], values, dvalues);
    if (!to_tails.links.empty()) transposed.gather_mix(*grad.of[k], dag.ranks[k], to_tails);
  }
  if (need_w) problem.clear_unused(dw);
  return {grad.of_h(problem, need_h), dw, dvalues};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) {
  m.impl("propagate", TORCH_BOX(&propagate));
  m.impl("propagate_backward", TORCH_BOX(&propagate_backward));
}
