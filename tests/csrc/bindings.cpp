// The torch-free kernels on numpy arrays, on one thread, for test_kernels.py only. Types, shapes and layouts are
// checked here and the structure by the kernels' own check, so that a mistake in a test raises and does not crash.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "../../csrc/cpu/kernels.h"

namespace py = pybind11;
using namespace tensus;

namespace {

using Array = py::array;
using Maybe = std::optional<py::array>;
using Shape = std::vector<py::ssize_t>;

void alone(Work work, void* context) { work(context); }

void require(bool condition, const std::string& message) {
  if (!condition) throw py::value_error(message);
}

// The numbers of an array that has this type and shape and, unless its strides are looked at elsewhere, no gaps.
const void* numbers(const Array& array, const char* name, const py::dtype& type, const Shape& shape,
                    bool dense = true) {
  require(array.dtype().equal(type), std::string(name) + " has the wrong dtype");
  require(Shape(array.shape(), array.shape() + array.ndim()) == shape, std::string(name) + " has the wrong shape");
  require(!dense || (array.flags() & Array::c_style), std::string(name) + " must be C-contiguous");
  return array.data();
}

const void* numbers(const Maybe& array, const char* name, const py::dtype& type, const Shape& shape) {
  return array ? numbers(*array, name, type, shape) : nullptr;
}

void* written(const Maybe& array, const char* name, const py::dtype& type, const Shape& shape, bool dense = true) {
  require(!array || array->writeable(), std::string(name) + " must be writeable");
  return array ? const_cast<void*>(numbers(*array, name, type, shape, dense)) : nullptr;
}

struct Graph {
  int64_t relations;
  Array row_ptr, seg_rel, seg_ptr, col;
  Maybe seg_val, edge_val;

  Segments structure() const {
    const py::dtype narrow = py::dtype::of<int32_t>(), wide = py::dtype::of<int64_t>();
    const bool is_wide = row_ptr.dtype().equal(wide);
    const py::dtype index = is_wide ? wide : narrow;
    require(row_ptr.size() > 0, "row_ptr must not be empty");
    const py::ssize_t nodes = row_ptr.size() - 1, segments = seg_rel.size(), edges = col.size();
    return {is_wide,
            nodes,
            relations,
            segments,
            edges,
            numbers(row_ptr, "row_ptr", index, {nodes + 1}),
            static_cast<const int32_t*>(numbers(seg_rel, "seg_rel", narrow, {segments})),
            numbers(seg_ptr, "seg_ptr", index, {segments + 1}),
            numbers(col, "col", index, {edges}),
            nullptr,
            nullptr};
  }

  const char* check() const { return kernels().check(structure(), structure().nodes, alone); }

  Segments checked(const py::dtype& real) const {
    Segments view = structure();
    if (const char* fault = check()) throw py::value_error(fault);
    view.seg_val = numbers(seg_val, "seg_val", real, {view.segments});
    view.edge_val = numbers(edge_val, "edge_val", real, {view.edges});
    return view;
  }
};

struct Diagonal {
  Maybe loop, seg_loop;
  const Graph* pairs;
};

struct Edge {
  Array w;  // (C, P, Q): P is the rank of the near state, Q that of the far one
  Maybe other, out, dw;
  bool accumulate;
};

// What the kernels have in common: a graph, its diagonal, a state (N, rank, F) at the near end and the links.
struct Job {
  py::dtype type;
  Real real;
  Segments graph, pairs;
  Loops loops;
  int64_t rank, features;
  std::vector<Link> links;

  Job(const Graph& g, const Diagonal& diagonal, const Array& near, const std::vector<Edge>& edges, bool from_far)
      : type(near.dtype()), real(type.equal(py::dtype::of<double>()) ? Real::f64 : Real::f32) {
    require(real == Real::f64 || type.equal(py::dtype::of<float>()), "a state must be float32 or float64");
    require(near.ndim() == 3, "a state must have the shape (nodes, rank, features)");
    graph = g.checked(type);
    pairs = diagonal.pairs->checked(type);
    require(pairs.nodes == graph.nodes && pairs.relations <= graph.relations && pairs.wide == graph.wide,
            "the pairs must belong to a graph of the same size and index type");
    loops = {numbers(diagonal.loop, "loop", type, {graph.relations}),
             numbers(diagonal.seg_loop, "seg_loop", type, {pairs.segments}), &pairs};
    rank = near.shape(1), features = near.shape(2);
    numbers(near, "the near state", type, {graph.nodes, rank, features});
    for (const Edge& edge : edges) links.push_back(link(edge, from_far));
  }
  Job(const Job&) = delete;  // the loops point to its own pairs

  Link link(const Edge& edge, bool from_far) const {
    require(edge.w.ndim() == 3, "w must have three axes");
    const py::ssize_t far = edge.w.shape(2), item = type.itemsize();
    const Shape matrices{graph.relations, rank, far}, state{graph.nodes, far, features};
    const Shape upright{rank * far * item, far * item, item}, turned{rank * far * item, item, rank * item};
    const Shape strides(edge.w.strides(), edge.w.strides() + 3);
    require(strides == upright || strides == turned, "each matrix of w must be contiguous, one way round or the other");
    require(edge.other || !(from_far || edge.dw), "a link needs its other state");
    void* dw = written(edge.dw, "dw", type, matrices, false);
    require(!dw || Shape(edge.dw->strides(), edge.dw->strides() + 3) == strides, "dw must be laid out as w");
    return {far,
            numbers(edge.w, "w", type, matrices, false),
            rank * far,
            strides[1] / item,
            strides[2] / item,
            written(edge.out, "out", type, state),
            edge.accumulate,
            numbers(edge.other, "other", type, state),
            dw};
  }

  int64_t link_count() const { return int64_t(links.size()); }
};

void gather_mix(const Graph& graph, const Diagonal& diagonal, const Array& x, const std::vector<Edge>& edges) {
  const Job job(graph, diagonal, x, edges, false);
  kernels().gather_mix(
      job.real, {job.graph, job.loops, x.data(), job.rank, job.features, job.links.data(), job.link_count(), alone});
}

void mix_gather(const Graph& graph, const Diagonal& diagonal, Array y, bool accumulate, const std::vector<Edge>& edges,
                int64_t at_once) {
  if (at_once < 1) throw py::value_error("at_once must be at least 1");
  const Job job(graph, diagonal, y, edges, true);
  std::vector<double> mixed(y.size() * at_once);  // room for either type; `sums` is for storage narrower than its sums
  kernels().mix_gather(job.real, {job.graph, job.loops, y.mutable_data(), accumulate, job.rank, job.features,
                                  job.links.data(), job.link_count(), at_once, mixed.data(), nullptr, alone});
}

void edge_gradient(const Graph& graph, const Array& x, const std::vector<Edge>& edges, Array grad, bool accumulate) {
  const Job job(graph, {{}, {}, &graph}, x, edges, true);
  kernels().edge_gradient(job.real, {job.graph, x.data(), job.rank, job.features, job.links.data(), job.link_count(),
                                     written(grad, "grad", job.type, {job.graph.edges}), accumulate, alone});
}

}  // namespace

PYBIND11_MODULE(kernel_bindings, m) {
  py::class_<Graph>(m, "Graph")
      .def(py::init<int64_t, Array, Array, Array, Array, Maybe, Maybe>(), py::arg("relations"), py::arg("row_ptr"),
           py::arg("seg_rel"), py::arg("seg_ptr"), py::arg("col"), py::arg("seg_val") = py::none(),
           py::arg("edge_val") = py::none())
      .def("check", &Graph::check);
  py::class_<Diagonal>(m, "Diagonal")
      .def(py::init<Maybe, Maybe, const Graph*>(), py::arg("loop"), py::arg("seg_loop"), py::arg("pairs").none(false),
           py::keep_alive<1, 4>());
  py::class_<Edge>(m, "Edge").def(py::init<Array, Maybe, Maybe, Maybe, bool>(), py::arg("w"),
                                  py::arg("other") = py::none(), py::arg("out") = py::none(),
                                  py::arg("dw") = py::none(), py::arg("accumulate") = false);
  m.def("gather_mix", &gather_mix);
  m.def("mix_gather", &mix_gather);
  m.def("edge_gradient", &edge_gradient);
  m.def("use", [](const std::string& isa) { return use_kernels(isa.c_str()); });
  m.def("in_use", [] { return kernels().isa; });
}
