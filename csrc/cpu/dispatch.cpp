// Chooses among the instruction sets the kernels were compiled for. This file is compiled for the baseline.
#include <atomic>
#include <cstring>

#include "kernels.h"

namespace tensus {

extern const Kernels kernels_plain;
#ifdef TENSUS_HAS_avx2
extern const Kernels kernels_avx2;
#endif
#ifdef TENSUS_HAS_avx512
extern const Kernels kernels_avx512;
#endif

namespace {

struct Built {
  const Kernels* kernels;
  bool runnable;
};

// Best last. The builtins ask for the operating system's support of the registers as well.
const Built* all(size_t* count) {
  static const Built built[] = {
      {&kernels_plain, true},
#ifdef TENSUS_HAS_avx2
      {&kernels_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
#endif
#ifdef TENSUS_HAS_avx512
      {&kernels_avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")},
#endif
  };
  *count = sizeof(built) / sizeof(*built);
  return built;
}

const Kernels* find(const char* isa) {
  size_t count;
  const Built* built = all(&count);
  while (count-- > 0)
    if (built[count].runnable && (!isa || !std::strcmp(isa, built[count].kernels->isa))) return built[count].kernels;
  return nullptr;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

const Kernels& kernels() {
  if (!chosen) chosen = find(nullptr);
  return *chosen;
}

bool use_kernels(const char* isa) {
  const Kernels* found = find(isa);
  if (found) chosen = found;
  return found != nullptr;
}

const Kernels* built_kernels(size_t i, bool* runnable) {
  size_t count;
  const Built* built = all(&count);
  if (i >= count) return nullptr;
  *runnable = built[i].runnable;
  return built[i].kernels;
}

}  // namespace tensus
