// The operators of torch: schemas, checks of the arguments, and the order of the passes. The kernels know none of this.
//
// Nodes of the DAG are 0 .. K in topological order, 0 the source; ranks[k] is the rank of state k, (N, ranks[k], F).
// Edge e leads from tails[e] to heads[e]; its weights (C, ranks[tail], ranks[head]) follow those of edge e - 1 in w.
// An edge is served by a pass at one of its ends: see passes.h for which.
#include <Python.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#ifndef _WIN32
#include <pthread.h>
#endif

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "cpu/arena.h"
#include "cpu/kernels.h"
#include "dag.h"
#include "passes.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Tensors = std::vector<Tensor>;
using namespace tensus;

// ---------------------------------------------------------------------------------------------- memory and threads

constexpr int64_t kLarge = 1 << 20;  // bytes from which a state comes from the arena

Tensor new_state(const Tensor& like, int64_t nodes, int64_t rank, int64_t features) {
  const int64_t bytes = nodes * rank * features * int64_t(like.element_size());
  if (bytes < kLarge) return torch::stable::new_empty(like, {nodes, rank, features});
  return torch::stable::from_blob(acquire_block(size_t(bytes)), {nodes, rank, features},
                                  {rank * features, features, 1}, like.device(), like.scalar_type(), release_block);
}

bool forked = false;

// torch's own threads: no second pool beside it, and torch.set_num_threads holds. OpenMP's threads do not survive a
// fork, and waiting for them would last forever, so a forked child is a team of one.
void torch_team(Work work, void* context) {
  if (forked) return work(context);
  torch::stable::parallel_for(0, torch::stable::get_num_threads(), 1, [&](int64_t, int64_t) { work(context); });
}

// ---------------------------------------------------------------------------------------------- arguments

ScalarType sum_type(ScalarType storage) {
  return storage == ScalarType::BFloat16 ? ScalarType::Float : storage;
}

void check_vector(const Tensor& t, const char* name, ScalarType type, int64_t size) {
  STD_TORCH_CHECK(t.is_cpu() && t.dim() == 1 && t.is_contiguous() && t.scalar_type() == type, name,
                  " must be a contiguous CPU vector of the expected type");
  STD_TORCH_CHECK(t.numel() == size, name, " must have ", size, " entries, got ", t.numel());
}

const void* check_values(const MaybeTensor& t, const char* name, ScalarType type, int64_t size) {
  if (!t) return nullptr;
  check_vector(*t, name, type, size);
  return t->const_data_ptr();
}

bool all_zero(const Tensor& t) {
  const auto zeros = [n = t.numel()](const auto* x) { return std::all_of(x, x + n, [](auto v) { return v == 0; }); };
  return t.scalar_type() == ScalarType::Double ? zeros(t.const_data_ptr<double>()) : zeros(t.const_data_ptr<float>());
}

// The parts are row_ptr, seg_rel, seg_ptr and col; in the transpose also edge_perm, which is of no interest here.
Segments check_structure(const Tensors& parts, const char* name, int64_t nodes, int64_t relations) {
  STD_TORCH_CHECK(parts.size() >= 4, name, " must hold row_ptr, seg_rel, seg_ptr and col");
  const Tensor &row_ptr = parts[0], &seg_rel = parts[1], &seg_ptr = parts[2], &col = parts[3];
  const ScalarType index = row_ptr.scalar_type();
  STD_TORCH_CHECK(index == ScalarType::Int || index == ScalarType::Long, name, ": indices must be int32 or int64");
  check_vector(row_ptr, "row_ptr", index, nodes + 1);
  check_vector(seg_rel, "seg_rel", ScalarType::Int, seg_rel.numel());
  check_vector(seg_ptr, "seg_ptr", index, seg_rel.numel() + 1);
  check_vector(col, "col", index, col.numel());
  const Segments graph{index == ScalarType::Long, nodes,   relations,
                       seg_rel.numel(),           col.numel(), row_ptr.const_data_ptr(),
                       seg_rel.const_data_ptr<int32_t>(), seg_ptr.const_data_ptr(), col.const_data_ptr(),
                       nullptr,                   nullptr};
  const char* problem = kernels().check(graph, torch_team);
  STD_TORCH_CHECK(!problem, name, ": ", problem);
  return graph;
}

// The arguments that forward and backward share, checked.
struct Problem {
  Dag dag;
  Tensor h, w;
  int64_t nodes, features, relations;
  Real real;
  Segments graph, transposed;  // transposed: only in backward
  Loops loops;                 // reads `graph`; set by whoever owns the struct, which must not move

  Problem(const Tensor& h_, const Tensor& w_, const Ints& ranks, const Ints& tails, const Ints& heads)
      : dag(ranks, tails, heads), h(h_), w(w_) {
    STD_TORCH_CHECK(h.is_cpu() && h.dim() == 3, "h must be a CPU tensor of shape (N, P, F)");
    switch (h.scalar_type()) {
      case ScalarType::Float: real = Real::f32; break;
      case ScalarType::Double: real = Real::f64; break;
      case ScalarType::BFloat16: real = Real::bf16; break;
      default: STD_TORCH_CHECK(false, "h must be float32, float64 or bfloat16");
    }
    nodes = h.size(0), features = h.size(2);
    STD_TORCH_CHECK(h.size(1) == dag.ranks[0], "h must have rank ", dag.ranks[0], ", got ", h.size(1));
    w = torch::stable::contiguous(w);
    check_vector(w, "w", sum_type(h.scalar_type()), w.numel());
    STD_TORCH_CHECK(w.numel() % dag.weights == 0, "w must hold a multiple of ", dag.weights, " numbers, got ", w.numel());
    relations = w.numel() / dag.weights;
    STD_TORCH_CHECK(relations <= INT32_MAX, "too many relations");
    h = torch::stable::contiguous(h);
  }
  Problem(const Problem&) = delete;

  ScalarType sums() const { return sum_type(h.scalar_type()); }

  void set_graph(const Tensors& forward, const MaybeTensor& seg_val, const MaybeTensor& edge_val,
                 const MaybeTensor& loop, const MaybeTensor& seg_loop) {
    graph = check_structure(forward, "forward", nodes, relations);
    graph.seg_val = check_values(seg_val, "seg_val", sums(), graph.segments);
    graph.edge_val = check_values(edge_val, "edge_val", sums(), graph.edges);
    loops.loop = check_values(loop, "loop", sums(), relations);
    loops.seg_loop = check_values(seg_loop, "seg_loop", sums(), graph.segments);
    loops.pairs = &graph;
    STD_TORCH_CHECK(loops.loop || !loops.seg_loop, "seg_loop needs loop");
    if (!loops.seg_loop && loops.loop && all_zero(*loop)) loops.loop = nullptr;
  }

  void set_transposed(const Tensors& backward, const MaybeTensor& seg_val, const MaybeTensor& edge_val) {
    transposed = check_structure(backward, "backward", nodes, relations);
    STD_TORCH_CHECK(transposed.edges == graph.edges && transposed.wide == graph.wide,
                    "forward and backward must have the same edges and index type");
    transposed.seg_val = check_values(seg_val, "back_seg_val", sums(), transposed.segments);
    transposed.edge_val = check_values(edge_val, "back_edge_val", sums(), transposed.edges);
  }

  const Tensor check_state(const Tensor& state, int64_t k, const char* name) const {
    STD_TORCH_CHECK(state.is_cpu() && state.scalar_type() == h.scalar_type() && state.dim() == 3 &&
                        state.size(0) == nodes && state.size(1) == dag.ranks[k] && state.size(2) == features,
                    name, " of state ", k, " must have the type of h and the shape (", nodes, ", ", dag.ranks[k], ", ",
                    features, ")");
    return torch::stable::contiguous(state);
  }

  std::vector<bool> mixed_first(bool backward) const {
    return tensus::mixed_first({nodes, relations, graph.edges}, dag.ranks, dag.tails, dag.heads, backward);
  }

  // Edge e seen from its tail (the far state is the head's) or from its head.
  Link link(int64_t e, bool from_tail) const {
    const int64_t p = dag.ranks[dag.tails[e]], q = dag.ranks[dag.heads[e]];
    Link l{};
    l.w = weight(w, e);
    l.rank = from_tail ? q : p;
    l.step = p * q;
    l.near = from_tail ? q : 1;
    l.far = from_tail ? 1 : q;
    return l;
  }

  // Where the weights of edge e, or their gradient, begin.
  void* weight(const Tensor& all, int64_t e) const {
    return static_cast<char*>(all.data_ptr()) + relations * dag.offset[e] * int64_t(all.element_size());
  }

  void gather_mix(const Segments& g, const Tensor& x, int64_t rank, const std::vector<Link>& links) const {
    if (links.empty()) return;
    kernels().gather_mix(real, {g, loops, x.const_data_ptr(), rank, features, links.data(), int64_t(links.size()),
                                torch_team});
  }
};

// The segments of each relation, for mix_gather; sorted at the first use.
class ByRelation {
 public:
  explicit ByRelation(const Problem& problem, const Segments& g) : problem_(problem), g_(g) {}

  void mix_gather(const Tensor& y, int64_t rank, bool accumulate, const std::vector<Link>& links) {
    if (links.empty()) return;
    if (rel_ptr_.empty()) prepare();
    const Tensor mixed = workspace(rank), sums = workspace(problem_.real == Real::bf16 ? rank : 0);
    kernels().mix_gather(problem_.real, {g_, problem_.loops, rel_ptr_.data(), order_.data(), order_row_.data(),
                                         y.mutable_data_ptr(), accumulate, rank, problem_.features, links.data(),
                                         int64_t(links.size()), mixed.mutable_data_ptr(), sums.mutable_data_ptr(),
                                         torch_team});
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

  const Problem& problem_;
  const Segments& g_;
  Ints rel_ptr_, order_, order_row_;
};

// ---------------------------------------------------------------------------------------------- forward

// The states 1 .. K. Node by node: what is mixed first at a node completes its state, which is then passed on.
Tensors propagate(const Tensor& h, const Tensor& w, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
                  const MaybeTensor&, const MaybeTensor&, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                  const Tensors& forward, const Tensors&, const Ints& ranks, const Ints& tails, const Ints& heads) {
  Problem problem(h, w, ranks, tails, heads);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  const std::vector<bool> mix_first = problem.mixed_first(false);
  ByRelation by_relation(problem, problem.graph);

  Tensors states{problem.h};
  for (int64_t k = 1; k <= dag.last(); ++k)
    states.push_back(new_state(problem.h, problem.nodes, dag.ranks[k], problem.features));
  std::vector<bool> written(states.size());

  for (int64_t k = 0; k <= dag.last(); ++k) {
    std::vector<Link> in, out;
    for (int64_t e = 0; e < dag.edges(); ++e) {
      if (dag.heads[e] == k && mix_first[e]) {
        in.push_back(problem.link(e, false));
        in.back().other = states[dag.tails[e]].const_data_ptr();
      }
      if (dag.tails[e] == k && !mix_first[e]) {
        out.push_back(problem.link(e, true));
        out.back().out = states[dag.heads[e]].mutable_data_ptr();
        out.back().accumulate = written[dag.heads[e]];
        written[dag.heads[e]] = true;
      }
    }
    by_relation.mix_gather(states[k], dag.ranks[k], written[k], in);
    problem.gather_mix(problem.graph, states[k], dag.ranks[k], out);
  }
  states.erase(states.begin());
  return states;
}

// ---------------------------------------------------------------------------------------------- backward

// The gradients of h, w and edge_val (empty where not needed), given those of some states. The states' own gradients
// are completed node by node from the sink: first what is mixed first, then passed on to the tails.
std::tuple<Tensor, Tensor, Tensor> propagate_backward(
    const Tensors& grads, const Ints& grad_nodes, const Tensor& h, const Tensors& states, const Tensor& w,
    const MaybeTensor& edge_val, const MaybeTensor& seg_val, const MaybeTensor& back_edge_val,
    const MaybeTensor& back_seg_val, const MaybeTensor& loop, const MaybeTensor& seg_loop, const Tensors& forward,
    const Tensors& backward, const Ints& ranks, const Ints& tails, const Ints& heads, bool need_h, bool need_w,
    bool need_values) {
  Problem problem(h, w, ranks, tails, heads);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  problem.set_transposed(backward, back_seg_val, back_edge_val);
  const std::vector<bool> mix_first = problem.mixed_first(true);
  ByRelation by_relation(problem, problem.transposed);

  STD_TORCH_CHECK(int64_t(states.size()) == dag.last(), "states must hold ", dag.last(), " tensors");
  STD_TORCH_CHECK(grads.size() == grad_nodes.size(), "grads and grad_nodes must have the same length");
  Tensors state{problem.h};
  for (int64_t k = 1; k <= dag.last(); ++k) state.push_back(problem.check_state(states[k - 1], k, "the value"));

  // What a state's gradient is made of: the one given, and those of its heads.
  std::vector<MaybeTensor> grad(dag.last() + 1);
  std::vector<bool> written(dag.last() + 1), present(dag.last() + 1), passed(dag.last() + 1);
  for (size_t i = 0; i < grads.size(); ++i) {
    const int64_t k = grad_nodes[i];
    STD_TORCH_CHECK(1 <= k && k <= dag.last() && !grad[k], "grad_nodes must name different states in [1, ", dag.last(), "]");
    grad[k] = problem.check_state(grads[i], k, "the gradient");
    written[k] = present[k] = true;
  }
  for (int64_t k = dag.last(); k >= 0; --k)
    for (int64_t e = 0; e < dag.edges(); ++e)
      if (dag.tails[e] == k && present[dag.heads[e]]) present[k] = passed[k] = true;
  for (int64_t k = need_h ? 0 : 1; k <= dag.last(); ++k) {
    if (!passed[k]) continue;
    Tensor sum = new_state(problem.h, problem.nodes, dag.ranks[k], problem.features);
    if (grad[k]) torch::stable::copy_(sum, *grad[k]);
    grad[k] = sum;
  }

  const Tensor dw = torch::stable::new_zeros(problem.w, {need_w ? problem.w.numel() : 0});
  const Tensor dvalues = torch::stable::new_zeros(problem.w, {need_values ? problem.graph.edges : 0});
  const auto add_dw = [&](Link& link, int64_t e, const Tensor& other) {
    if (!need_w) return;
    link.other = other.const_data_ptr();
    link.dw = problem.weight(dw, e);
  };

  for (int64_t k = dag.last(); k >= 0; --k) {
    std::vector<Link> to_tails, mixed, mixed_dw, values;
    for (int64_t e = 0; e < dag.edges(); ++e) {
      const int64_t j = dag.tails[e];
      if (dag.heads[e] == k && present[k] && !mix_first[e] && (grad[j] || need_w)) {
        Link link = problem.link(e, false);
        if (grad[j]) {
          link.out = grad[j]->mutable_data_ptr();
          link.accumulate = written[j];
          written[j] = true;
        }
        add_dw(link, e, state[j]);
        to_tails.push_back(link);
      }
      if (j == k && present[dag.heads[e]]) {
        Link link = problem.link(e, true);
        link.other = grad[dag.heads[e]]->const_data_ptr();
        if (need_values) values.push_back(link);
        if (!mix_first[e]) continue;
        if (grad[k]) mixed.push_back(link);
        add_dw(link, e, *grad[dag.heads[e]]);
        if (need_w) mixed_dw.push_back(link);
      }
    }
    if (!mixed.empty()) {
      by_relation.mix_gather(*grad[k], dag.ranks[k], written[k], mixed);
      written[k] = true;
    }
    problem.gather_mix(problem.graph, state[k], dag.ranks[k], mixed_dw);
    if (!values.empty())
      kernels().edge_gradient(problem.real,
                              {problem.graph, state[k].const_data_ptr(), dag.ranks[k], problem.features, values.data(),
                               int64_t(values.size()), dvalues.mutable_data_ptr(), true, torch_team});
    if (!to_tails.empty()) problem.gather_mix(problem.transposed, *grad[k], dag.ranks[k], to_tails);
  }

  const Tensor dh = grad[0] ? *grad[0]
                            : torch::stable::new_zeros(problem.h, {need_h ? problem.nodes : 0, dag.ranks[0], problem.features});
  return {dh, dw, dvalues};
}

// ---------------------------------------------------------------------------------------------- the Python module

PyObject* isa(PyObject*, PyObject*) { return PyUnicode_FromString(kernels().isa); }

PyObject* use_isa(PyObject*, PyObject* name) {
  const char* text = nullptr;
  if (name != Py_None && !(text = PyUnicode_AsUTF8AndSize(name, nullptr))) return nullptr;
  if (!use_kernels(text)) return PyErr_Format(PyExc_ValueError, "%R is not built, or this machine lacks it", name);
  Py_RETURN_NONE;
}

// {name: whether this machine runs it}
PyObject* isas(PyObject*, PyObject*) {
  PyObject* all = PyDict_New();
  bool runnable;
  for (size_t i = 0; all; ++i) {
    const Kernels* set = built_kernels(i, &runnable);
    if (!set) break;
    if (PyDict_SetItemString(all, set->isa, runnable ? Py_True : Py_False) < 0) Py_CLEAR(all);
  }
  return all;
}

#ifndef TENSUS_CUDA_ARCHITECTURES
#define TENSUS_CUDA_ARCHITECTURES ""
#endif

PyObject* cuda_architectures(PyObject*, PyObject*) { return PyUnicode_FromString(TENSUS_CUDA_ARCHITECTURES); }

PyMethodDef methods[] = {
    {"isa", isa, METH_NOARGS, "The instruction set of the kernels in use."},
    {"use_isa", use_isa, METH_O, "Choose an instruction set by name, or the best with None."},
    {"isas", isas, METH_NOARGS, "The instruction sets that were built, and whether this machine runs them."},
    {"cuda_architectures", cuda_architectures, METH_NOARGS,
     "What the CUDA kernels were compiled for, separated by semicolons; empty where there are none."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

STABLE_TORCH_LIBRARY(tensus_tn, m) {
  m.def(
      "propagate(Tensor h, Tensor w, Tensor? edge_val, Tensor? seg_val, Tensor? back_edge_val, Tensor? back_seg_val, "
      "Tensor? loop, Tensor? seg_loop, Tensor[] forward, Tensor[] backward, int[] ranks, int[] tails, int[] heads) "
      "-> Tensor[]");
  m.def(
      "propagate_backward(Tensor[] grads, int[] grad_nodes, Tensor h, Tensor[] states, Tensor w, Tensor? edge_val, "
      "Tensor? seg_val, Tensor? back_edge_val, Tensor? back_seg_val, Tensor? loop, Tensor? seg_loop, "
      "Tensor[] forward, Tensor[] backward, int[] ranks, int[] tails, int[] heads, bool need_h, bool need_w, "
      "bool need_values) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) {
  m.impl("propagate", TORCH_BOX(&propagate));
  m.impl("propagate_backward", TORCH_BOX(&propagate_backward));
}

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__C() {
#ifndef _WIN32
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif
  return PyModule_Create(&module);
}
