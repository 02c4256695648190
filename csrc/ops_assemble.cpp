// The operator that turns lists of edges into the structure of a graph: checks of the arguments, memory for the result.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <vector>

#include "cpu/assemble.h"

namespace {

using namespace tensus;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Ints = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

Tensor empty(int64_t size, ScalarType type) { return torch::stable::empty({size}, type); }

std::vector<EdgeList> edge_lists(const Tensors& rows, const Tensors& cols, const Ints& ranges, int64_t nodes) {
  STD_TORCH_CHECK(rows.size() == cols.size() && ranges.size() == 4 * rows.size(),
                  "expected as many cols as rows, and four numbers for each");
  STD_TORCH_CHECK(nodes >= 0 && nodes <= INT32_MAX, "the number of nodes must be in [0, 2^31), got ", nodes);
  std::vector<EdgeList> lists;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const Tensor* t : {&rows[i], &cols[i]})
      STD_TORCH_CHECK(t->is_cpu() && t->dim() == 1 && t->is_contiguous() && t->scalar_type() == ScalarType::Long,
                      "list ", i, ": ids must be a contiguous vector of int64 on the CPU");
    STD_TORCH_CHECK(rows[i].numel() == cols[i].numel(), "list ", i, ": ", rows[i].numel(), " receiving but ",
                    cols[i].numel(), " sending nodes");
    const int64_t* range = &ranges[4 * i];
    for (const int64_t* end : {range, range + 2})
      STD_TORCH_CHECK(end[0] >= 0 && end[1] >= 0 && end[0] + end[1] <= nodes, "list ", i, ": the range ", end[0], " + ",
                      end[1], " is not within ", nodes, " nodes");
    lists.push_back({rows[i].const_data_ptr<int64_t>(), cols[i].const_data_ptr<int64_t>(), rows[i].numel(), range[0],
                     range[1], range[2], range[3]});
  }
  return lists;
}

template <class Index>
Tensors fill(const Assembly& assembly, int64_t nodes, int64_t given, ScalarType type) {
  const int64_t edges = assembly.edges(), segments = assembly.segments(), back = assembly.transposed_segments();
  Tensors parts{empty(nodes + 1, type),    empty(segments, ScalarType::Int),
                empty(segments + 1, type), empty(edges, type),
                empty(nodes + 1, type),    empty(back, ScalarType::Int),
                empty(back + 1, type),     empty(edges, type),
                empty(edges, type),        empty(given, type)};
  const auto index = [&](size_t i) { return static_cast<Index*>(parts[i].mutable_data_ptr()); };
  const auto relation = [&](size_t i) { return static_cast<int32_t*>(parts[i].mutable_data_ptr()); };
  assembly.fill<Index>({index(0), relation(1), index(2), index(3), index(4), relation(5), index(6), index(7), index(8),
                        given ? index(9) : nullptr});
  return parts;
}

Tensors assemble(const Tensors& rows, const Tensors& cols, const Ints& ranges, int64_t nodes, bool positions,
                 bool wide) {
  const std::vector<EdgeList> lists = edge_lists(rows, cols, ranges, nodes);
  const Assembly assembly(lists, nodes, positions);
  if (const BadId* bad = assembly.bad()) {
    const EdgeList& list = lists[bad->list];
    STD_TORCH_CHECK(false, "list ", bad->list, ": ", bad->is_row ? "receiving" : "sending", " node ", bad->id,
                    " is out of range, there are ", bad->is_row ? list.rows : list.cols);
  }
  int64_t given = 0;
  for (const EdgeList& list : lists) given += positions ? list.size : 0;
  if (wide) return fill<int64_t>(assembly, nodes, given, ScalarType::Long);
  STD_TORCH_CHECK(assembly.edges() < INT32_MAX, assembly.edges(), " edges need 64-bit indices: wide=true");
  return fill<int32_t>(assembly, nodes, given, ScalarType::Int);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) { m.impl("assemble", TORCH_BOX(&assemble)); }
