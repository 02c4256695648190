// The kernels of kernels.h, written once over a vector width. setup.py compiles this file for each instruction set,
// with TENSUS_ISA naming it. All code has internal linkage and no function of the standard library is used: an
// inline function shared between the objects could be merged by the linker into the version of the wrong machine.
#include "kernels.h"

#include "check.h"
#include "edge_gradient.h"
#include "gather_mix.h"
#include "mix_gather.h"

#define TENSUS_JOIN_(a, b) a##b
#define TENSUS_JOIN(a, b) TENSUS_JOIN_(a, b)
#define TENSUS_TEXT_(a) #a
#define TENSUS_TEXT(a) TENSUS_TEXT_(a)

namespace tensus {
namespace {

// Calls run<T, I>() with the types of storage and index.
template <class Run> void typed(Real real, bool wide, const Run& run) {
  const auto indexed = [&]<class T>() {
    if (!wide) run.template operator()<T, int32_t>();
    else if constexpr (!kSanitized || sizeof(T) == sizeof(float)) run.template operator()<T, int64_t>();
  };
  switch (real) {
    case Real::f32: return indexed.template operator()<float>();
    case Real::f64: return indexed.template operator()<double>();
    case Real::bf16: return indexed.template operator()<BFloat16>();
    case Real::f16:
      if constexpr (!kSanitized) indexed.template operator()<Float16>();
      return;
  }
}

void gather_mix(Real real, const GatherMix& job) {
  typed(real, job.graph.wide, [&]<class T, class I>() { gather_mix_pass<T, I>(job); });
}

void mix_gather(Real real, const MixGather& job) {
  typed(real, job.graph.wide, [&]<class T, class I>() {
    for_stripes<Sum<T>, 0>(job.groups, job.features, [&]<int U>() { MixGatherPass<T, I, U>(job).run(); });
  });
}

void edge_gradient(Real real, const EdgeGradient& job) {
  typed(real, job.graph.wide, [&]<class T, class I>() {
    for_stripes<Sum<T>, 0>(job.groups, job.features, [&]<int U>() { edge_gradient_pass<T, I, U>(job); });
  });
}

}  // namespace

extern const Kernels TENSUS_JOIN(kernels_, TENSUS_ISA);
const Kernels TENSUS_JOIN(kernels_, TENSUS_ISA) = {TENSUS_TEXT(TENSUS_ISA), gather_mix, mix_gather, edge_gradient,
                                                   check};

}  // namespace tensus
