// What the operators for CPU tensors share.
#pragma once
#include <algorithm>
#include <vector>

#include "arguments.h"
#include "cpu/arena.h"
#include "cpu/kernels.h"
#include "team.h"

namespace tensus {

inline Tensor new_state(const Tensor& like, int64_t nodes, int64_t rank, int64_t features) {
  const int64_t bytes = nodes * rank * features * int64_t(like.element_size());
  if (bytes < int64_t(kLarge)) return torch::stable::new_empty(like, {nodes, rank, features});
  return torch::stable::from_blob(acquire_block(size_t(bytes)), {nodes, rank, features}, {rank * features, features, 1},
                                  like.device(), like.scalar_type(), release_block);
}

inline Real real_of(const Tensor& h) {
  switch (h.scalar_type()) {
    case ScalarType::Float: return Real::f32;
    case ScalarType::Double: return Real::f64;
    case ScalarType::BFloat16: return Real::bf16;
    case ScalarType::Half: return Real::f16;
    default: STD_TORCH_CHECK(false, "h must be float32, float64, bfloat16 or float16");
  }
}

inline bool all_zero(const Tensor& t) {
  const auto zeros = [n = t.numel()](const auto* x) { return std::all_of(x, x + n, [](auto v) { return v == 0; }); };
  return t.scalar_type() == ScalarType::Double ? zeros(t.const_data_ptr<double>()) : zeros(t.const_data_ptr<float>());
}

inline void check_indices(const Segments& g, const char* name, int64_t columns) {
  const char* problem = kernels().check(g, columns, torch_team);
  STD_TORCH_CHECK(!problem, name, ": ", problem);
}

// How many relations mix_gather mixes at once: as many as take no more room than the states that it reads.
inline int64_t mixed_at_once(const std::vector<Link>& links, int64_t rank, int64_t relations) {
  int64_t read = 0;
  for (const Link& link : links) read += link.rank;
  return std::clamp<int64_t>(read / rank, 1, std::max<int64_t>(relations, 1));
}

}  // namespace tensus
