// Stands in for CUDA, so that the kernels of csrc/cuda compile as C++ and run on the CPU: every CUDA thread is a fiber.
// Only what the kernels use is here. simt.cpp has the scheduler.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define TENSUS_SHARED(name) unsigned char* const name = ::simt::shared()

namespace simt {

struct Index {
  unsigned x;
};

struct Thread {
  Index thread, block, grid;
};

// What the lanes of a warp tell each other in a collective operation.
struct Exchange {
  uint64_t value[32];
  uint32_t present;
};

enum class Collective { shuffle, vote, barrier };

const Thread& self();
unsigned char* shared();
void barrier(const char* site);
void warp_barrier(uint32_t mask);
const Exchange& exchange(uint32_t mask, Collective, uint64_t value);
[[noreturn]] void fail(const char* message);  // ends the launch, from within a kernel

using Body = void (*)(const void* arguments);
void run(int64_t blocks, int threads, size_t shared, Body body, const void* arguments);
const char* error();  // what was wrong with the launches since the last call, or null

// The order of the threads, drawn anew whenever they can run; zero: by their number.
void set_seed(uint64_t seed);

template <class A> A shuffle(uint32_t mask, A value, unsigned source) {
  static_assert(sizeof(A) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(A));
  const Exchange& all = exchange(mask, Collective::shuffle, bits);
  if (!(all.present >> source & 1)) fail("a shuffle reads a lane that its mask does not name");
  std::memcpy(&value, &all.value[source], sizeof(A));
  return value;
}

}  // namespace simt

#define threadIdx (::simt::self().thread)
#define blockIdx (::simt::self().block)
#define gridDim (::simt::self().grid)
#define SIMT_TEXT_(a) #a
#define SIMT_TEXT(a) SIMT_TEXT_(a)
#define __syncthreads() ::simt::barrier(__FILE__ ":" SIMT_TEXT(__LINE__))

template <class A> A __shfl_xor_sync(uint32_t mask, A value, unsigned bits) {
  return simt::shuffle(mask, value, (threadIdx.x % 32) ^ bits);
}

template <class A> A __shfl_down_sync(uint32_t mask, A value, unsigned by) {
  const unsigned lane = threadIdx.x % 32;
  return simt::shuffle(mask, value, lane + by < 32 ? lane + by : lane);
}

inline uint32_t __ballot_sync(uint32_t mask, bool vote) {
  const simt::Exchange& all = simt::exchange(mask, simt::Collective::vote, vote);
  uint32_t ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) ballot |= uint32_t((all.present >> lane & 1) && all.value[lane]) << lane;
  return ballot;
}

inline void __syncwarp(uint32_t mask) { simt::warp_barrier(mask); }

inline bool __any_sync(uint32_t mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }

inline float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}

using __half = _Float16;
inline __half __ushort_as_half(uint16_t bits) {
  __half x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline uint16_t __half_as_ushort(__half x) {
  uint16_t bits;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}
inline float __half2float(__half x) { return float(x); }
inline __half __float2half_rn(float x) { return __half(x); }

namespace tensus::cuda {

template <class Arguments>
void launch(void (*kernel)(Arguments), int64_t blocks, int threads, size_t shared, void*, const Arguments& arguments) {
  const struct Call {
    void (*kernel)(Arguments);
    const Arguments& arguments;
  } call{kernel, arguments};
  simt::run(
      blocks, threads, shared, [](const void* c) { ((const Call*)c)->kernel(((const Call*)c)->arguments); }, &call);
}

inline const char* launch_error() { return simt::error(); }

template <class N> N fresh(N number) { return number; }
template <class V> V read_only(const V* from) { return *from; }

}  // namespace tensus::cuda
