// The operators for CUDA tensors: checks of the arguments and the order of the passes. Compiled by the host's
// compiler against torch's stable ABI: neither nvcc nor a CUDA build of torch is needed for this file.
//
// Every DAG edge is gathered first, at its tail forward and at its head backward (see cuda/kernels.h). Shapes and types
// are checked here; the indices are not, for that would mean waiting for the device. A structure may end
// with the order in which its rows are taken (see cuda/kernels.h); without one, they are taken whole, as numbered.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

#include "arguments.h"
#include "cuda/kernels.h"

#ifndef TENSUS_SIMT
// A part of torch's stable ABI, but in libtorch_cuda: absent where torch was built without CUDA.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream);
#endif

namespace {

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
  explicit Current(const Tensor& t) : guard_(t.get_device_index()) {
    STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream, "tensus_tn: this torch was built without CUDA");
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(t.get_device_index(), &stream_));
  }
  void* stream() const { return stream_; }

 private:
  torch::stable::accelerator::DeviceGuard guard_;
  void* stream_ = nullptr;
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

// The arguments, and the passes over the graph.
class CudaProblem : public Problem {
 public:
  CudaProblem(const Tensor& h, const Tensor& w, const Ints& ranks, const Ints& tails, const Ints& heads,
              const MaybeInts& flags, const MaybeInts& group_sizes)
      : Problem(h, w, ranks, tails, heads, flags, group_sizes, on_device, "CUDA", cuda::kMaxMasked), current_(h),
        real_(real_of(h)) {}

  // After the rows of all states come their row maps (states, N), see cuda/kernels.h.
  void set_needed(Tensors rows) {
    if (rows.empty()) return;
    maps_ = rows.back();
    rows.pop_back();
    Problem::set_needed(rows);
    STD_TORCH_CHECK(is_near(maps_) && maps_.dim() == 2 && maps_.size(0) == int64_t(rows.size()) &&
                        maps_.size(1) == nodes && maps_.is_contiguous() &&
                        maps_.scalar_type() == (graph.wide ? ScalarType::Long : ScalarType::Int),
                    "needed must end with row maps, contiguous (", rows.size(), ", ", nodes,
                    "), on the device and of the index type of the graph");
  }

  RowMap row_map(int64_t k) const {
    if (needed.empty() || needed[k].numel() == nodes) return nullptr;
    return static_cast<const char*>(maps_.const_data_ptr()) + k * nodes * int64_t(maps_.element_size());
  }

  Tensor new_state(int64_t k) const { return torch::stable::new_empty(h, {rows(k), dag.ranks[k], features}); }

  // Rows of h that are not needed have the gradient zero.
  Tensor new_gradient(int64_t k) const {
    if (k > 0 || !row_map(k)) return new_state(k);
    return torch::stable::new_zeros(h, {nodes, dag.ranks[k], features});
  }

  Link link(int64_t e, bool from_tail) const {
    Link link = Problem::link(e, from_tail);
    link.row = row_map(from_tail ? dag.heads[e] : dag.tails[e]);
    return link;
  }

  // In which order the rows of a structure are taken; it has `others` tensors besides.
  cuda::Order order_of(const Tensors& structure, size_t others, const Segments& g) const {
    if (structure.size() <= others) return {};
    STD_TORCH_CHECK(structure.size() == others + 3,
                    "the order of rows is three tensors: parts, long rows and the others");
    const Tensor &parts = structure[others], &long_rows = structure[others + 1], &short_rows = structure[others + 2];
    for (const Tensor& each : {parts, long_rows, short_rows})
      STD_TORCH_CHECK(
          is_near(each) && each.is_contiguous() && each.scalar_type() == (g.wide ? ScalarType::Long : ScalarType::Int),
          "the order of rows must be contiguous, on the device and of the index type of the graph");
    STD_TORCH_CHECK(parts.dim() == 2 && parts.size(1) == 3 && long_rows.dim() == 2 && long_rows.size(1) == 3 &&
                        short_rows.dim() == 1 && short_rows.numel() == g.nodes - long_rows.size(0),
                    "the order of rows must be (parts, 3), (long rows, 3) and all other rows");
    return {parts.const_data_ptr(), parts.size(0), long_rows.const_data_ptr(), long_rows.size(0),
            short_rows.const_data_ptr()};
  }

  void gather_mix(const Segments& g, const cuda::Order& order, const Tensor& x, int64_t k,
                  const std::vector<Link>& links) const {
    if (links.empty()) return;
    const cuda::GatherMix job{g,
                              order,
                              loops,
                              x.const_data_ptr(),
                              row_map(k),
                              dag.ranks[k],
                              features,
                              links.data(),
                              int64_t(links.size()),
                              groups()};
    const cuda::Kernels& kernels = cuda::kernels(real_);
    const Tensor scratch = bytes(kernels.gather_mix_scratch(job));
    check(kernels.gather_mix(job, scratch.data_ptr(), current_.stream()));
  }

  void edge_gradient(const cuda::Order& order, const Tensor& x, int64_t k, const std::vector<Link>& links,
                     const Tensor& grad) const {
    if (links.empty()) return;
    const cuda::EdgeGradient job{graph,    order,        x.const_data_ptr(),    row_map(k), dag.ranks[k],
                                 features, links.data(), int64_t(links.size()), groups(),   grad.mutable_data_ptr(),
                                 true};
    const cuda::Kernels& kernels = cuda::kernels(real_);
    const Tensor scratch = bytes(kernels.edge_gradient_scratch(job));
    check(kernels.edge_gradient(job, scratch.data_ptr(), current_.stream()));
  }

 private:
  // From torch's allocator, which is safe in a CUDA graph: memory that is freed is used again only later in the stream.
  Tensor bytes(size_t size) const { return torch::stable::new_empty(h, {int64_t(size)}, ScalarType::Byte); }

  static void check(const char* error) { STD_TORCH_CHECK(!error, "tensus_tn: CUDA: ", error); }

  Current current_;
  cuda::Real real_;
  Tensor maps_;
};

// ---------------------------------------------------------------------------------------------- forward

// The states 1 .. K: each, once complete, is passed on to its heads.
Tensors propagate(const Tensor& h, const Tensor& w, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
                  const MaybeTensor&, const MaybeTensor&, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                  const Tensors& forward, const Tensors&, const Ints& ranks, const Ints& tails, const Ints& heads,
                  const MaybeInts& chosen, const Tensors& needed, const MaybeInts& group_sizes) {
  CudaProblem problem(h, w, ranks, tails, heads, chosen, group_sizes);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  problem.set_needed(needed);
  const cuda::Order order = problem.order_of(forward, 4, problem.graph);

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
    problem.gather_mix(problem.graph, order, states[k], k, links);
  }
  states.erase(states.begin());
  return states;
}

// ---------------------------------------------------------------------------------------------- backward

// The gradients of h, w and edge_val (empty where not needed), given those of some states. From the sink on, the
// gradient of each state, once complete, is passed on to its tails.
std::tuple<Tensor, Tensor, Tensor> propagate_backward(
    const Tensors& grads, const Ints& grad_nodes, const Tensors& states, const Tensor& h, const Tensor& w,
    const MaybeTensor& edge_val, const MaybeTensor& seg_val, const MaybeTensor& back_edge_val,
    const MaybeTensor& back_seg_val, const MaybeTensor& loop, const MaybeTensor& seg_loop, const Tensors& forward,
    const Tensors& backward, const Ints& ranks, const Ints& tails, const Ints& heads, const MaybeInts& chosen,
    const Tensors& needed, const MaybeInts& group_sizes, bool need_h, bool need_w, bool need_values) {
  CudaProblem problem(h, w, ranks, tails, heads, chosen, group_sizes);
  const Dag& dag = problem.dag;
  problem.set_graph(forward, seg_val, edge_val, loop, seg_loop);
  problem.set_needed(needed);
  problem.set_transposed(backward, back_seg_val, back_edge_val);

  const Tensors state = problem.check_states(states);
  Gradients grad(problem, grads, grad_nodes, need_h, [&](int64_t k) { return problem.new_gradient(k); });

  Tensor dw = torch::stable::new_zeros(problem.w, {need_w ? problem.w.numel() : 0});
  const Tensor dvalues = torch::stable::new_zeros(problem.w, {need_values ? problem.graph.edges : 0});
  const cuda::Order order = problem.order_of(backward, 5, problem.transposed);

  for (int64_t k = dag.last(); k > 0; --k) {
    if (!grad.present[k]) continue;
    std::vector<Link> links;
    for (int64_t e = 0; e < dag.edges(); ++e) {
      const int64_t j = dag.tails[e];
      if (dag.heads[e] != k || !(grad.of[j] || need_w)) continue;
      Link link = problem.link(e, false);
      grad.add(link, j);
      if (need_w) {
        link.other = state[j].const_data_ptr();
        link.dw = problem.weight(dw, e);
      }
      links.push_back(link);
    }
    problem.gather_mix(problem.transposed, order, *grad.of[k], k, links);
  }
  if (need_w && !problem.masked) problem.clear_unused(dw);

  if (need_values) {
    const cuda::Order forward_order = problem.order_of(forward, 4, problem.graph);
    for (int64_t j = 0; j < dag.last(); ++j) {
      std::vector<Link> links;
      for (int64_t e = 0; e < dag.edges(); ++e) {
        if (dag.tails[e] != j || !grad.present[dag.heads[e]]) continue;
        links.push_back(problem.link(e, true));
        links.back().other = grad.of[dag.heads[e]]->const_data_ptr();
      }
      problem.edge_gradient(forward_order, state[j], j, links, dvalues);
    }
  }

  return {grad.of_h(problem, need_h), dw, dvalues};
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
