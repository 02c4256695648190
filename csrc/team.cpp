#include "team.h"

#include <torch/csrc/stable/ops.h>

#ifndef _WIN32
#include <pthread.h>
#endif

namespace tensus {
namespace {

// OpenMP's threads do not survive a fork, and waiting for them would last forever, so a forked child is a team of one.
bool forked = false;

#ifndef _WIN32
[[maybe_unused]] const int watching = pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif

}  // namespace

void torch_team(Work work, void* context) {
  if (forked) return work(context);
  torch::stable::parallel_for(0, torch::stable::get_num_threads(), 1, [&](int64_t, int64_t) { work(context); });
}

}  // namespace tensus
