// The operator that draws a block of a graph: checks of the arguments, memory for the result.
#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "arguments.h"
#include "cpu/sample.h"

namespace {

using namespace tensus;

template <class T> Tensor as_tensor(const std::vector<T>& list) {
  const ScalarType type = sizeof(T) == sizeof(int64_t) ? ScalarType::Long : ScalarType::Int;
  Tensor tensor = torch::stable::empty({int64_t(list.size())}, type);
  std::copy(list.begin(), list.end(), static_cast<T*>(tensor.mutable_data_ptr()));
  return tensor;
}

Tensors draw_block(const Tensor& seeds, const Tensors& forward, const Ints& fan_out, int64_t relations, int64_t seed) {
  Checks checks(seeds, [](const Tensor& t) { return t.is_cpu(); });
  checks.check_vector(seeds, "seeds", ScalarType::Long, seeds.numel());
  STD_TORCH_CHECK(!forward.empty() && forward[0].dim() == 1 && forward[0].numel() >= 1, "forward must hold row_ptr");
  STD_TORCH_CHECK(relations >= 0 && relations <= INT32_MAX, "relations must be a number of relations");
  checks.nodes = forward[0].numel() - 1, checks.relations = relations;
  STD_TORCH_CHECK(checks.nodes <= INT32_MAX, "a graph must have less than 2^31 nodes");
  const Segments whole = checks.check_structure(forward, "forward", {}, {});
  const int64_t hops = relations ? int64_t(fan_out.size()) / relations : 0;
  STD_TORCH_CHECK(hops * relations == int64_t(fan_out.size()), "fan_out must hold ", relations,
                  " numbers for each hop, got ", fan_out.size());
  const Sampling sampling{whole, seeds.const_data_ptr<int64_t>(), seeds.numel(), fan_out.data(), hops, uint64_t(seed)};
  const Block block = whole.wide ? sample_block<int64_t>(sampling) : sample_block<int32_t>(sampling);
  STD_TORCH_CHECK(!block.problem, block.problem);
  Tensors parts{as_tensor(block.node), as_tensor(block.seed_row), as_tensor(block.segment), as_tensor(block.edge)};
  for (const Block::Structure* s : {&block.forward, &block.backward})
    for (const auto* list : {&s->row_ptr, &s->seg_rel, &s->seg_ptr, &s->col}) parts.push_back(as_tensor(*list));
  parts.push_back(as_tensor(block.perm));
  return parts;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) { m.impl("sample_block", TORCH_BOX(&draw_block)); }
