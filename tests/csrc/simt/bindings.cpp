// The CUDA kernels on numpy arrays, run by simt.h, for test_cuda_kernels.py only. All arrays are copied into blocks of
// their exact size, as if to a device, so that the address sanitizer sees every access beyond them.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../../csrc/cuda/kernels.h"
#include "simt.h"

namespace py = pybind11;
using namespace tensus;

namespace tensus::cuda {  // a test may leave out some
extern const Kernels kernels_f32 __attribute__((weak)), kernels_f64 __attribute__((weak));
extern const Kernels kernels_f16 __attribute__((weak)), kernels_bf16 __attribute__((weak));
}  // namespace tensus::cuda

namespace {

using Array = py::array;
using Maybe = std::optional<py::array>;

void require(bool condition, const std::string& message) {
  if (!condition) throw py::value_error(message);
}

class Device {
 public:
  // Blocks begin at multiples of 16 bytes, and so many later.
  explicit Device(size_t offset) : offset_(offset) {}
  Device(const Device&) = delete;
  ~Device() {
    for (const Block& block : blocks_) std::free(block.memory);
  }

  void* allocate(size_t bytes, size_t offset = 0) {
    Block block{nullptr, {}, nullptr};
    if (posix_memalign(&block.memory, 16, bytes + offset)) throw std::bad_alloc();
    block.data = static_cast<char*>(block.memory) + offset;
    std::memset(block.data, 0xff, bytes);
    blocks_.push_back(block);
    return block.data;
  }

  // The memory of an array, whatever the order of its axes.
  void* copy(const Maybe& array, bool back = false) {
    if (!array) return nullptr;
    void* data = allocate(size_t(array->nbytes()), offset_ * size_t(array->itemsize()));
    std::memcpy(data, array->data(), size_t(array->nbytes()));
    if (back) blocks_.back().origin = array;
    return data;
  }

  void copy_back() {
    for (Block& block : blocks_)
      if (block.origin) std::memcpy(block.origin->mutable_data(), block.data, size_t(block.origin->nbytes()));
  }

 private:
  struct Block {
    void* memory;
    Maybe origin;
    void* data;
  };
  size_t offset_;
  std::vector<Block> blocks_;
};

struct Graph {
  int64_t relations;
  Array row_ptr, seg_rel, seg_ptr, col;
  Maybe seg_val, edge_val;

  Segments on(Device& device) const {
    return {row_ptr.itemsize() == 8,
            row_ptr.size() - 1,
            relations,
            seg_rel.size(),
            col.size(),
            device.copy(row_ptr),
            static_cast<const int32_t*>(device.copy(seg_rel)),
            device.copy(seg_ptr),
            device.copy(col),
            device.copy(seg_val),
            device.copy(edge_val)};
  }

  // Whether a state has so many rows: those that a row map names, or all.
  bool fits(py::ssize_t rows, const Maybe& row) const {
    if (!row) return rows == row_ptr.size() - 1;
    return row->size() == row_ptr.size() - 1 && row->dtype().equal(row_ptr.dtype());
  }
};

struct Diagonal {
  Maybe loop, seg_loop;
  const Graph* pairs;
};

struct Edge {
  Array w;  // (groups, C, P, Q), each matrix contiguous, one way round or the other
  Maybe other, out, dw;
  bool accumulate;
  std::optional<std::vector<int64_t>> chosen;
  Maybe row;

  Link on(Device& device, const Graph& graph, const Array& near) const {
    require(w.ndim() == 4 && w.shape(2) == near.shape(1), "w must have the shape (groups, C, P, Q)");
    for (const Maybe& state : {other, out})
      require(!state || (state->ndim() == 3 && graph.fits(state->shape(0), row) && state->shape(1) == w.shape(3) &&
                         state->shape(2) == near.shape(2) && state->itemsize() == near.itemsize()),
              "a far state has the wrong shape or type");
    Link link{};
    link.rank = w.shape(3);
    link.w = device.copy(w);
    link.group = w.shape(1) * w.shape(2) * w.shape(3);
    link.step = w.shape(2) * w.shape(3);
    link.near = w.strides(2) / w.itemsize();
    link.far = w.strides(3) / w.itemsize();
    link.out = device.copy(out, true);
    link.accumulate = accumulate;
    link.other = device.copy(other);
    link.dw = device.copy(dw, true);
    link.chosen = chosen ? chosen->data() : nullptr;
    link.row = device.copy(row);
    return link;
  }
};

cuda::Real real_of(const std::string& name) {
  if (name == "f32") return cuda::Real::f32;
  if (name == "f64") return cuda::Real::f64;
  if (name == "f16") return cuda::Real::f16;
  require(name == "bf16", "no such type: " + name);
  return cuda::Real::bf16;
}

void check(const char* error) {
  if (error) throw std::runtime_error(error);
}

template <class N> const N* copy_of(const std::vector<N>& list, Device& device) {
  const size_t bytes = list.size() * sizeof(N);
  void* const data = device.allocate(bytes);
  if (bytes) std::memcpy(data, list.data(), bytes);
  return static_cast<const N*>(data);
}

// As order_rows in tensus_tn/propagation/segments.py.
template <class I> cuda::Order order(const Segments& graph, Device& device) {
  const I *const row_ptr = static_cast<const I*>(graph.row_ptr), *const seg_ptr = static_cast<const I*>(graph.seg_ptr);
  const auto first_edge = [&](I row) { return seg_ptr[row_ptr[row]]; };
  const auto edges = [&](I row) { return first_edge(row + 1) - first_edge(row); };
  std::vector<I> rows(size_t(graph.nodes));
  std::iota(rows.begin(), rows.end(), I(0));
  std::stable_sort(rows.begin(), rows.end(), [&](I a, I b) { return edges(a) > edges(b); });
  std::vector<cuda::Part<I>> parts;
  std::vector<cuda::LongRow<I>> long_rows;
  for (I row : rows) {
    if (edges(row) <= cuda::kSplit) break;
    const I count = (edges(row) + cuda::kSplit - 1) / cuda::kSplit;
    long_rows.push_back({row, I(parts.size()), count});
    for (I k = 0; k < count; ++k)
      parts.push_back({row, first_edge(row) + k * edges(row) / count, first_edge(row) + (k + 1) * edges(row) / count});
  }
  rows.erase(rows.begin(), rows.begin() + int64_t(long_rows.size()));
  return {copy_of(parts, device), int64_t(parts.size()), copy_of(long_rows, device), int64_t(long_rows.size()),
          copy_of(rows, device)};
}

cuda::Order order_of(const Segments& graph, Device& device) {
  return graph.wide ? order<int64_t>(graph, device) : order<int32_t>(graph, device);
}

// Where the groups of features end, on the host.
using Ends = std::vector<int64_t>;

Groups groups_of(const Ends& ends) { return {int64_t(ends.size()), ends.data()}; }

void gather_mix(const std::string& real, const Graph& graph, const Diagonal& diagonal, const Array& x,
                const std::vector<Edge>& edges, size_t offset, const Maybe& row, const Ends& ends) {
  Device device(offset);
  require(x.ndim() == 3 && graph.fits(x.shape(0), row), "x must have the shape (N, P, F)");
  const Segments g = graph.on(device), pairs = diagonal.pairs->on(device);
  std::vector<Link> links;
  for (const Edge& edge : edges) links.push_back(edge.on(device, graph, x));
  const cuda::GatherMix job{g,
                            order_of(g, device),
                            {device.copy(diagonal.loop), device.copy(diagonal.seg_loop), &pairs},
                            device.copy(x),
                            device.copy(row),
                            x.shape(1),
                            x.shape(2),
                            links.data(),
                            int64_t(links.size()),
                            groups_of(ends)};
  const cuda::Kernels& kernels = cuda::kernels(real_of(real));
  check(kernels.gather_mix(job, device.allocate(kernels.gather_mix_scratch(job)), nullptr));
  device.copy_back();
}

void edge_gradient(const std::string& real, const Graph& graph, const Array& x, const std::vector<Edge>& edges,
                   Array grad, bool accumulate, size_t offset, const Maybe& row, const Ends& ends) {
  Device device(offset);
  require(grad.size() == graph.col.size(), "grad must have one entry an edge");
  const Segments g = graph.on(device);
  std::vector<Link> links;
  for (const Edge& edge : edges) links.push_back(edge.on(device, graph, x));
  const cuda::EdgeGradient job{
      g,          order_of(g, device), device.copy(x),        device.copy(row), x.shape(1),
      x.shape(2), links.data(),        int64_t(links.size()), groups_of(ends),  device.copy(grad, true),
      accumulate};
  const cuda::Kernels& kernels = cuda::kernels(real_of(real));
  check(kernels.edge_gradient(job, device.allocate(kernels.edge_gradient_scratch(job)), nullptr));
  device.copy_back();
}

}  // namespace

PYBIND11_MODULE(simt_bindings, m) {
  py::class_<Graph>(m, "Graph")
      .def(py::init<int64_t, Array, Array, Array, Array, Maybe, Maybe>(), py::arg("relations"), py::arg("row_ptr"),
           py::arg("seg_rel"), py::arg("seg_ptr"), py::arg("col"), py::arg("seg_val") = py::none(),
           py::arg("edge_val") = py::none());
  py::class_<Diagonal>(m, "Diagonal")
      .def(py::init<Maybe, Maybe, const Graph*>(), py::arg("loop"), py::arg("seg_loop"), py::arg("pairs").none(false),
           py::keep_alive<1, 4>());
  py::class_<Edge>(m, "Edge").def(
      py::init<Array, Maybe, Maybe, Maybe, bool, std::optional<std::vector<int64_t>>, Maybe>(), py::arg("w"),
      py::arg("other") = py::none(), py::arg("out") = py::none(), py::arg("dw") = py::none(),
      py::arg("accumulate") = false, py::arg("chosen") = py::none(), py::arg("row") = py::none());
  m.def("gather_mix", &gather_mix);
  m.def("edge_gradient", &edge_gradient);
  m.def("set_seed", &simt::set_seed);
}
