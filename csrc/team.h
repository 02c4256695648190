// The threads that the CPU kernels work on.
#pragma once
#include "cpu/kernels.h"

namespace tensus {

// A Team of torch's own threads: no second pool beside it, and torch.set_num_threads holds.
void torch_team(Work work, void* context);

}  // namespace tensus
