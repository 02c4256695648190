// The operators of ops.cpp for CUDA tensors: checks of the arguments and the order of the passes. Compiled by the host's
// compiler against torch's stable ABI: neither nvcc nor a CUDA build of torch is needed for this file.
//
// Every DAG edge is gathered first, at its tail forward and at its head backward (see cuda/kernels.h). Shapes and types
// are checked here; the indices are not, for that would mean waiting for the device.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <optional>
#include <tuple>
#include <vector>

#include "cuda/kernels.h"
#include "dag.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Tensors = std::vector<Tensor>;
using namespace tensus;

#ifdef TENSUS_SIMT  // for the tests: CPU tensors, and kernels that run on the CPU
bool on_device(const Tensor& t) { return t.is_cpu(); }

struct Current {
  explicit Current(const Tensor&) {}
  void* stream() const { return nullptr; }
};
#else
bool on_device(const Tensor& t) { return t.is_cuda(); }

// The device of a tensor made current, and its current stream.
class Current {
 public:
  explicit Current(const Tensor& t)
      : guard_(t.get_device_index()), stream_(torch::stable::accelerator::getCurrentStream(t.get_device_index())) {}
  void* stream() const { return stream_.nativeHandle(); }

 private:
  torch::stable::accelerator::DeviceGuard guard_;
  torch::stable::accelerator::Stream stream_;
};
#endif

// ---------------------------------------------------------------------------------------------- arguments

cuda::Real real_of(const Tensor& h) {
  switch (h.scalar_type()) {
    case ScalarType::Float: return cuda::Real::f32;
    case ScalarType::Double: return cuda::Real::f64;
    case ScalarType::Half: return cuda::Real::f16;
    case ScalarType::BFloat16: return cuda::Real::bf16;
    default: STD_TORCH_CHECK(false, "h must be float32, float64, float16 or bfloat16");
  }
}

const Tensor& check_h(const Tensor& h) {
  STD_TORCH_CHECK(on_device(h) && h.dim() == 3, "h must be a CUDA tensor of shape (N, P, F)");
  return h;
}

// The arguments that forward and backward share, checked, and the passes over the graph.
class Problem {
 public:
  Problem(const Tensor& h_, const Tensor& w_, const Ints& ranks, const Ints& tails, const Ints& heads)
      : dag(ranks, tails, heads), current_(check_h(h_)), real_(real_of(h_)) {
    STD_TORCH_CHECK(h_.size(1) == dag.ranks[0], "h must have rank ", dag.ranks[0], ", got ", h_.size(1));
    nodes = h_.size(0), features = h_.size(2);
    h = torch::stable::contiguous(h_);
    w = torch::stable::contiguous(w_);
    sums_ = real_ == cuda::Real::f64 ? ScalarType::Double : ScalarType::Float;
    check_vector(w, "w", sums_, w.numel());
    STD_TORCH_CHECK(w.numel() % dag.weights == 0, "w must hold a multiple of ", dag.weights, " numbers, got ", w.numel());
    relations = w.numel() / dag.weights;
    STD_TORCH_CHECK(relations <= INT32_MAX, "too many relations");
  }
  Problem(const Problem&) = delete;  // the loops point to its own graph

  void set_graph(const Tensors& forward, const MaybeTensor& seg_val, const MaybeTensor& edge_val,
                 const MaybeTensor& loop, const MaybeTensor& seg_loop) {
    graph = check_structure(forward, "forward", seg_val, edge_val);
    loops_.loop = check_values(loop, "loop", relations);
    loops_.seg_loop = check_values(seg_loop, "seg_loop", graph.segments);
    loops_.pairs = &graph;
    STD_TORCH_CHECK(loops_.loop || !loops_.seg_loop, "seg_loop needs loop");
  }

  void set_transposed(const Tensors& backward, const MaybeTensor& seg_val, const MaybeTensor& edge_val) {
    transposed = check_structure(backward, "backward", seg_val, edge_val);
    STD_TORCH_CHECK(transposed.edges == graph.edges && transposed.wide == graph.wide,
                    "forward and backward must have the same edges and index type");
  }

  Tensor check_state(const Tensor& state, int64_t k, const char* name) const {
    STD_TORCH_CHECK(is_near(state) && state.scalar_type() == h.scalar_type() && state.dim() == 3 &&
                        state.size(0) == nodes && state.size(1) == dag.ranks[k] && state.size(2) == features,
                    name, " of state ", k, " must have the device and type of h and the shape (", nodes, ", ",
                    dag.ranks[k], ", ", features, ")");
    return torch::stable::contiguous(state);
  }

  Tensor new_state(int64_t k) const { return torch::stable::new_empty(h, {nodes, dag.ranks[k], features}); }

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

  // Where the long rows of a graph are, for the passes over it.
  Tensor find_parts(const Segments& g) const {
    const Tensor parts = bytes(cuda::parts_size(g));
    check(cuda::find_parts(g, parts.data_ptr(), current_.stream()));
    return parts;
  }

  void gather_mix(const Segments& g, const Tensor& parts, const Tensor& x, int64_t k,
                  const std::vector<Link>& links) const {
    if (links.empty()) return;
    const cuda::GatherMix job{g,        parts.data_ptr(), loops_, x.const_data_ptr(), dag.ranks[k], features, links.data(),
                              int64_t(links.size())};
    const cuda::Kernels& kernels = cuda::kernels(real_);
    const Tensor scratch = bytes(kernels.gather_mix_scratch(job));
    check(kernels.gather_mix(job, scratch.data_ptr(), current_.stream()));
  }

  void edge_gradient(const Tensor& parts, const Tensor& x, int64_t k, const std::vector<Link>& links,
                     const Tensor& grad) const {
    if (links.empty()) return;
    const cuda::EdgeGradient job{graph, parts.data_ptr(), x.const_data_ptr(), dag.ranks[k], features, links.data(),
                                 int64_t(links.size()), grad.mutable_data_ptr(), true};
    const cuda::Kernels& kernels = cuda::kernels(real_);
    const Tensor scratch = bytes(kernels.edge_gradient_scratch(job));
    check(kernels.edge_gradient(job, scratch.data_ptr(), current_.stream()));
  }

  const Dag dag;
  Tensor h, w;
  int64_t nodes, features, relations;
  Segments graph, transposed;  // transposed: only in backward

 private:
  // From torch's allocator, which is safe in a CUDA graph: memory that is freed is used again only later in the stream.
  Tensor bytes(size_t size) const { return torch::stable::new_empty(h, {int64_t(size)}, ScalarType::Byte); }

  static void check(const char* error) { STD_TORCH_CHECK(!error, "tensus_tn: CUDA: ", error); }

  bool is_near(const Tensor& t) const { return on_device(t) && t.get_device_index() == h.get_device_index(); }

  void check_vector(const Tensor& t, const char* name, ScalarType type, int64_t size) const {
    STD_TORCH_CHECK(is_near(t) && t.dim() == 1 && t.is_contiguous() && t.scalar_type() == type, name,
                    " must be a contiguous vector of the expected type on the device of h");
    STD_TORCH_CHECK(t.numel() == size, name, " must have ", size, " entries, got ", t.numel());
  }

  const void* check_values(const MaybeTensor& t, const char* name, int64_t size) const {
    if (!t) return nullptr;
    check_vector(*t, name, sums_, size);
    return t->const_data_ptr();
  }

  // The parts are row_ptr, seg_rel, seg_ptr and col; in the transpose also edge_perm, which is of no interest here.
  Segments check_structure(const Tensors& parts, const char* name, const MaybeTensor& seg_val,
                           const MaybeTensor& edge_val) const {
    STD_TORCH_CHECK(parts.size() >= 4, name, " must hold row_ptr, seg_rel, seg_ptr and col");
    const Tensor &row_ptr = parts[0], &seg_rel = parts[1], &seg_ptr = parts[2], &col = parts[3];
    const ScalarType index = row_ptr.scalar_type();
    STD_TORCH_CHECK(index == ScalarType::Int || index == ScalarType::Long, name, ": indices must be int32 or int64");
    check_vector(row_ptr, "row_ptr", index, nodes + 1);
    check_vector(seg_rel, "seg_rel", ScalarType::Int, seg_rel.numel());
    check_vector(seg_ptr, "seg_ptr", index, seg_rel.numel() + 1);
    check_vector(col, "col", index, col.numel());
    return {index == ScalarType::Long,
            nodes,
            relations,
            seg_rel.numel(),
            col.numel(),
            row_ptr.const_data_ptr(),
            seg_rel.const_data_ptr<int32_t>(),
            seg_ptr.const_data_ptr(),
            col.const_data_ptr(),
            check_values(seg_val, "seg_val", seg_rel.numel()),
            check_values(edge_val, "edge_val", col.numel())};
  }

  Current current_;
  cuda::Real real_;
  ScalarType sums_;
  Loops loops_;
};

// ---------------------------------------------------------------------------------------------- forward

// The states 1 .. K: each, once complete, is passed on to its heads.
Tensors propagate(const Tensor& h, const Tensor& w, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
                  const MaybeTensor&, const MaybeTensor&, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                  const Tensors& forward, const Tensors&, const Ints& ranks, const Ints& tails, const Ints& heads) {
  Problem problem(h, w, ranks, tails, heads);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  const Tensor parts = problem.find_parts(problem.graph);

  Tensors states{problem.h};
  for (int64_t k = 1; k <= dag.last(); ++k) states.push_back(problem.new_state(k));
  std::vector<bool> written(states.size());

  for (int64_t k = 0; k <= dag.last(); ++k) {
    std::vector<Link> links;
    for (int64_t e = 0; e < dag.edges(); ++e) {
      if (dag.tails[e] != k) continue;
      links.push_back(problem.link(e, true));
      links.back().out = states[dag.heads[e]].mutable_data_ptr();
      links.back().accumulate = written[dag.heads[e]];
      written[dag.heads[e]] = true;
    }
    problem.gather_mix(problem.graph, parts, states[k], k, links);
  }
  states.erase(states.begin());
  return states;
}

// ---------------------------------------------------------------------------------------------- backward

// The gradients of h, w and edge_val (empty where not needed), given those of some states. From the sink on, the gradient
// of each state, once complete, is passed on to its tails.
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

  STD_TORCH_CHECK(int64_t(states.size()) == dag.last(), "states must hold ", dag.last(), " tensors");
  STD_TORCH_CHECK(grads.size() == grad_nodes.size(), "grads and grad_nodes must have the same length");
  Tensors state{problem.h};
  for (int64_t k = 1; k <= dag.last(); ++k) state.push_back(problem.check_state(states[k - 1], k, "the value"));

  // A state's gradient is the one given, if any, and what its heads pass on, if they have one.
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
    Tensor sum = problem.new_state(k);
    if (grad[k]) torch::stable::copy_(sum, *grad[k]);
    grad[k] = sum;
  }

  const Tensor dw = torch::stable::new_zeros(problem.w, {need_w ? problem.w.numel() : 0});
  const Tensor dvalues = torch::stable::new_zeros(problem.w, {need_values ? problem.graph.edges : 0});
  const Tensor parts = problem.find_parts(problem.transposed);

  for (int64_t k = dag.last(); k > 0; --k) {
    if (!present[k]) continue;
    std::vector<Link> links;
    for (int64_t e = 0; e < dag.edges(); ++e) {
      const int64_t j = dag.tails[e];
      if (dag.heads[e] != k || !(grad[j] || need_w)) continue;
      Link link = problem.link(e, false);
      if (grad[j]) {
        link.out = grad[j]->mutable_data_ptr();
        link.accumulate = written[j];
        written[j] = true;
      }
      if (need_w) {
        link.other = state[j].const_data_ptr();
        link.dw = problem.weight(dw, e);
      }
      links.push_back(link);
    }
    problem.gather_mix(problem.transposed, parts, *grad[k], k, links);
  }

  if (need_values) {
    const Tensor forward_parts = problem.find_parts(problem.graph);
    for (int64_t j = 0; j < dag.last(); ++j) {
      std::vector<Link> links;
      for (int64_t e = 0; e < dag.edges(); ++e) {
        if (dag.tails[e] != j || !present[dag.heads[e]]) continue;
        links.push_back(problem.link(e, true));
        links.back().other = grad[dag.heads[e]]->const_data_ptr();
      }
      problem.edge_gradient(forward_parts, state[j], j, links, dvalues);
    }
  }

  const Tensor dh = grad[0] ? *grad[0]
                            : torch::stable::new_zeros(problem.h, {need_h ? problem.nodes : 0, dag.ranks[0], problem.features});
  return {dh, dw, dvalues};
}

}  // namespace

#ifdef TENSUS_SIMT
STABLE_TORCH_LIBRARY_IMPL(tensus_simt, CPU, m) {
#else
STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CUDA, m) {
#endif
  m.impl("propagate", TORCH_BOX(&propagate));
  m.impl("propagate_backward", TORCH_BOX(&propagate_backward));
}
