// What torch and Python see of the extension: the schemas of the operators, and the module `_C`.
//
// Nodes of the DAG are 0 .. K in topological order, 0 the source; ranks[k] is the rank of state k, (N, ranks[k], F).
// Edge e leads from tails[e] to heads[e]; its weights (C, ranks[tail], ranks[head]) follow those of edge e - 1 in w.
// With `chosen`, edge e uses relation i only where chosen[e * C + i] is 1; its other weights count as zero.
// With `needed`, ascending rows of every state, only these are worked on: state k is (len(needed[k]), ranks[k], F), but
// h is whole. They must be what needed_rows returns, or more. An empty list stands for all rows of all states. For CUDA
// one more tensor (states, N) says where each node stands in each state, -1: nowhere; in h it stands at its own number.
// With `group_sizes`, the columns of F are in groups: first group_sizes[0] columns of group 0, and so on. w then holds
// the weights of all edges for group 0, then those for group 1, and so on.
//
// gather_mix and mix_gather are single passes (see graph.h) over rows of a graph that may have more columns than rows.
// Row n of the structure is row near_rows[n] of the near state x or y, and far_rows[l][n] of the state at the other end
// of link l, -1 where they lack it; without these, it is row n. Its self-loops are seg_loop on its pairs, which are
// row_ptr and seg_rel as those of a structure. Link l has the weights w[l], (C, d_j, d_k), from the tail or from the
// head. In gather_mix, columns are rows of x and then of its halo, and an empty out[l] is not written. mix_gather takes
// as many rows as there are columns, and its rows that y lacks have no edges; rows of other[l] go on in halos[l].
//
// mark_columns marks those of the columns that edges of used relations (C) lead from, to rows (N) that are marked.
// select_rows returns row_ptr, seg_rel, seg_ptr and col of some rows, -1 standing for an empty one, without relations
// that are not used and columns whose new number is -1; then the numbers of its segments and edges in the structure.
//
// plan_passes says which edges of the DAG are mixed first (see passes.h) on a graph of `nodes` nodes where relation i
// has edges[i]; empty_state gives memory that is not initialised.
//
// Of `assemble`, each list i of edges leads from cols[i] to rows[i], ids within the ranges of nodes that begin at
// ranges[4 i], ranges[4 i + 2] and have ranges[4 i + 1], ranges[4 i + 3] nodes. It returns row_ptr, seg_rel, seg_ptr
// and col of the forward structure, then those of its transpose, its perm, how often every edge was given (nothing if
// each was once), and with `positions` the place of every given edge.
//
// Of `normalize_counts`, see cpu/normalize.h. It returns the values of edges, or of segments if `times` is empty, the
// self-loops of segments, and the values of the transpose: nothing where all values are 1, all loops as they were.
//
// Of `sample_block`, fan_out is (hops, relations), see cpu/sample.h. It returns the node of each row, the row of each
// seed, the number of each segment and of each edge in the whole graph, then the structures as `assemble`, and perm.
#include <Python.h>
#include <torch/csrc/stable/library.h>

#include "cpu/kernels.h"
#include "cuda/kernels.h"

// ---------------------------------------------------------------------------------------------- schemas

STABLE_TORCH_LIBRARY(tensus_tn, m) {
  m.def(
      "propagate(Tensor h, Tensor w, Tensor? edge_val, Tensor? seg_val, Tensor? back_edge_val, Tensor? back_seg_val, "
      "Tensor? loop, Tensor? seg_loop, Tensor[] forward, Tensor[] backward, int[] ranks, int[] tails, int[] heads, "
      "int[]? chosen, Tensor[] needed, int[]? group_sizes) -> Tensor[]");
  m.def(
      "propagate_backward(Tensor[] grads, int[] grad_nodes, Tensor[] states, Tensor h, Tensor w, Tensor? edge_val, "
      "Tensor? seg_val, Tensor? back_edge_val, Tensor? back_seg_val, Tensor? loop, Tensor? seg_loop, "
      "Tensor[] forward, Tensor[] backward, int[] ranks, int[] tails, int[] heads, int[]? chosen, "
      "Tensor[] needed, int[]? group_sizes, bool need_h, bool need_w, bool need_values) -> (Tensor, Tensor, Tensor)");
  m.def(
      "needed_rows(Tensor rows, Tensor? support, Tensor? loop, Tensor? seg_loop, Tensor[] forward, Tensor[] backward, "
      "int[] tails, int[] heads, int[]? chosen, int states, int relations) -> Tensor[]");
  m.def(
      "gather_mix(Tensor x, Tensor? halo, Tensor[] w, Tensor? edge_val, Tensor? seg_val, Tensor? loop, "
      "Tensor? seg_loop, Tensor[] structure, Tensor[] pairs, Tensor? near_rows, Tensor[] far_rows, Tensor(a!)[] out, "
      "int[] accumulate, Tensor[] other, Tensor(b!)[] dw, bool from_tail) -> ()");
  m.def(
      "mix_gather(Tensor(a!) y, bool accumulate, Tensor[] w, Tensor? edge_val, Tensor? seg_val, Tensor? loop, "
      "Tensor? seg_loop, Tensor[] structure, Tensor[] pairs, Tensor? near_rows, Tensor[] far_rows, Tensor[] other, "
      "Tensor[] halos, bool from_tail) -> ()");
  m.def("mark_columns(Tensor[] structure, Tensor rows, Tensor used, int columns) -> Tensor");
  m.def("select_rows(Tensor[] structure, Tensor rows, Tensor used, Tensor column) -> Tensor[]");
  m.def(
      "plan_passes(Tensor edges, int nodes, int[] ranks, int[] tails, int[] heads, int[]? chosen, bool backward) "
      "-> int[]");
  m.def("empty_state(Tensor like, int nodes, int rank) -> Tensor");
  m.def("assemble(Tensor[] rows, Tensor[] cols, int[] ranges, int nodes, bool positions, bool wide) -> Tensor[]");
  m.def(
      "normalize_counts(Tensor seg_rel, Tensor seg_ptr, Tensor perm, Tensor times, int[] divide, Tensor loop) "
      "-> Tensor[]");
  m.def("sample_block(Tensor seeds, Tensor[] forward, int[] fan_out, int relations, int seed) -> Tensor[]");
}

// ---------------------------------------------------------------------------------------------- the Python module

namespace {

using namespace tensus;

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

#ifndef TENSUS_CUDA_TOOLKIT
#define TENSUS_CUDA_TOOLKIT ""
#endif

PyObject* cuda_toolkit(PyObject*, PyObject*) { return PyUnicode_FromString(TENSUS_CUDA_TOOLKIT); }

PyObject* cuda_split(PyObject*, PyObject*) { return PyLong_FromLong(cuda::kSplit); }

PyMethodDef methods[] = {
    {"isa", isa, METH_NOARGS, "The instruction set of the kernels in use."},
    {"use_isa", use_isa, METH_O, "Choose an instruction set by name, or the best with None."},
    {"isas", isas, METH_NOARGS, "The instruction sets that were built, and whether this machine runs them."},
    {"cuda_architectures", cuda_architectures, METH_NOARGS,
     "What the CUDA kernels were compiled for, separated by semicolons; empty where there are none."},
    {"cuda_split", cuda_split, METH_NOARGS, "From how many edges on the CUDA kernels want a row split into parts."},
    {"cuda_toolkit", cuda_toolkit, METH_NOARGS, "The CUDA that compiled them, as 12.8; empty where there are none."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__C() { return PyModule_Create(&module); }
