// The operators that turn lists of edges into a graph: checks of the arguments, memory for the result.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <vector>

#include "cpu/assemble.h"
#include "cpu/normalize.h"
#include "team.h"

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
Tensors assembled(const std::vector<EdgeList>& lists, int64_t nodes, int64_t given, bool positions, ScalarType type) {
  Assembly<Index> assembly(lists, nodes, positions, torch_team);
  if (const BadId* bad = assembly.bad()) {
    const EdgeList& list = lists[bad->list];
    STD_TORCH_CHECK(false, "list ", bad->list, ": ", bad->is_row ? "receiving" : "sending", " node ", bad->id,
                    " is out of range, there are ", bad->is_row ? list.rows : list.cols);
  }
  const int64_t edges = assembly.edges(), segments = assembly.segments(), back = assembly.transposed_segments();
  const bool repeats = assembly.repeats();
  Tensors parts{empty(nodes + 1, type),
                empty(segments, ScalarType::Int),
                empty(segments + 1, type),
                empty(edges, type),
                empty(nodes + 1, type),
                empty(back, ScalarType::Int),
                empty(back + 1, type),
                empty(edges, type),
                empty(edges, type),
                empty(repeats ? edges : 0, type),
                empty(positions ? given : 0, type)};
  const auto index = [&](size_t i) { return static_cast<Index*>(parts[i].mutable_data_ptr()); };
  const auto relation = [&](size_t i) { return static_cast<int32_t*>(parts[i].mutable_data_ptr()); };
  assembly.fill({{index(0), relation(1), index(2), index(3)},
                 {index(4), relation(5), index(6), index(7)},
                 index(8),
                 repeats ? index(9) : nullptr,
                 positions ? index(10) : nullptr});
  return parts;
}

Tensors assemble(const Tensors& rows, const Tensors& cols, const Ints& ranges, int64_t nodes, bool positions,
                 bool wide) {
  const std::vector<EdgeList> lists = edge_lists(rows, cols, ranges, nodes);
  int64_t given = 0;
  for (const EdgeList& list : lists) given += list.size;
  if (wide) return assembled<int64_t>(lists, nodes, given, positions, ScalarType::Long);
  STD_TORCH_CHECK(given < INT32_MAX, given, " edges need 64-bit indices: wide=true");
  return assembled<int32_t>(lists, nodes, given, positions, ScalarType::Int);
}

void check_vector(const Tensor& t, const char* name, ScalarType type, int64_t size) {
  STD_TORCH_CHECK(t.is_cpu() && t.dim() == 1 && t.is_contiguous() && t.scalar_type() == type, name,
                  " must be a contiguous vector of the expected type on the CPU");
  STD_TORCH_CHECK(t.numel() == size, name, " must have ", size, " entries, got ", t.numel());
}

template <class Value, class Index>
Tensors normalized(const CountedEdges<Index>& edges, const Ints& divide, const Tensor& loop) {
  const ScalarType type = loop.scalar_type();
  Tensors parts{empty(edges.times ? edges.edges : edges.segments, type), empty(edges.segments, type),
                empty(edges.edges, type)};
  const auto data = [&](size_t i) { return static_cast<Value*>(parts[i].mutable_data_ptr()); };
  const Normalized found = normalize<Value, Index>(edges, {divide.begin(), divide.end()}, loop.const_data_ptr<Value>(),
                                                   {data(0), data(1), data(2)}, torch_team);
  STD_TORCH_CHECK(!found.error, found.error);
  if (!found.loops) parts[1] = empty(0, type);
  if (!found.values && !edges.times) parts[0] = parts[2] = empty(0, type);
  return parts;
}

template <class Index>
Tensors normalized(const Tensor& seg_rel, const Tensor& seg_ptr, const Tensor& perm, const Tensor& times,
                   const Ints& divide, const Tensor& loop) {
  const auto data = [](const Tensor& t) { return t.const_data_ptr<Index>(); };
  const CountedEdges<Index> edges{seg_rel.const_data_ptr<int32_t>(),     data(seg_ptr),   data(perm),
                                  times.numel() ? data(times) : nullptr, seg_rel.numel(), perm.numel()};
  if (loop.scalar_type() == ScalarType::Double) return normalized<double>(edges, divide, loop);
  return normalized<float>(edges, divide, loop);
}

Tensors normalize_counts(const Tensor& seg_rel, const Tensor& seg_ptr, const Tensor& perm, const Tensor& times,
                         const Ints& divide, const Tensor& loop) {
  const ScalarType index = seg_ptr.scalar_type(), value = loop.scalar_type();
  STD_TORCH_CHECK(index == ScalarType::Int || index == ScalarType::Long, "indices must be int32 or int64");
  STD_TORCH_CHECK(value == ScalarType::Float || value == ScalarType::Double, "loop must be float32 or float64");
  check_vector(seg_rel, "seg_rel", ScalarType::Int, seg_rel.numel());
  check_vector(seg_ptr, "seg_ptr", index, seg_rel.numel() + 1);
  check_vector(perm, "perm", index, perm.numel());
  check_vector(times, "times", index, times.numel() ? perm.numel() : 0);
  check_vector(loop, "loop", value, int64_t(divide.size()));
  if (index == ScalarType::Long) return normalized<int64_t>(seg_rel, seg_ptr, perm, times, divide, loop);
  return normalized<int32_t>(seg_rel, seg_ptr, perm, times, divide, loop);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) {
  m.impl("assemble", TORCH_BOX(&assemble));
  m.impl("normalize_counts", TORCH_BOX(&normalize_counts));
}
