// What the kernels need of CUDA, and nothing else: a launch, numbers and vectors of them. Without nvcc, <simt.h> stands
// in for CUDA: there every thread is a fiber of the CPU (tests/csrc/simt).
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define TENSUS_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#else
#include <simt.h>
#endif

namespace tensus::cuda {

#ifdef __CUDACC__
template <class Arguments>
void launch(void (*kernel)(Arguments), int64_t blocks, int threads, size_t shared, void* stream,
            const Arguments& arguments) {
  kernel<<<unsigned(blocks), threads, shared, cudaStream_t(stream)>>>(arguments);
}

// The same number. What is worked out from it is worked out here and now: the compiler does not keep it in registers.
__device__ __forceinline__ int32_t fresh(int32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}
__device__ __forceinline__ int64_t fresh(int64_t number) {
  asm volatile("" : "+l"(number));
  return number;
}

// What nobody writes while the kernel runs, by way of the read-only cache.
template <size_t bytes> struct WordOf {
  using type = uint4;
};
template <> struct WordOf<8> {
  using type = uint2;
};
template <> struct WordOf<4> {
  using type = unsigned;
};
template <class V> __device__ __forceinline__ V read_only(const V* from) {
  using Word = typename WordOf<sizeof(V)>::type;
  union Words {
    Word word[sizeof(V) / sizeof(Word)];
    V value;
    __device__ Words() {}
  } words;
#pragma unroll
  for (int k = 0; k < int(sizeof(V) / sizeof(Word)); ++k)
    words.word[k] = __ldg(reinterpret_cast<const Word*>(from) + k);
  return words.value;
}

inline const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
#endif

// ---------------------------------------------------------------------------------------------- numbers

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <class T> struct SumOf {
  using type = T;
};
template <> struct SumOf<Float16> {
  using type = float;
};
template <> struct SumOf<BFloat16> {
  using type = float;
};
template <class T> using Sum = typename SumOf<T>::type;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(Float16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ __forceinline__ float widen(BFloat16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }

__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(double x, double& to) { to = x; }
__device__ __forceinline__ void narrow(float x, Float16& to) { to.bits = __half_as_ushort(__float2half_rn(x)); }
__device__ __forceinline__ void narrow(float x, BFloat16& to) {  // to nearest even, and NaN stays NaN
  const uint32_t bits = __float_as_uint(x);
  to.bits = x == x ? uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) : uint16_t(0x7fc0);
}

// V numbers that are read and written at once, 16 bytes at most.
template <class T, int V> struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Vec {
  T at[V];
};

template <int V, class T> __device__ __forceinline__ Vec<T, V> load(const T* from) {
  return *reinterpret_cast<const Vec<T, V>*>(from);
}

template <int V, class T> __device__ __forceinline__ void store(T* to, const Vec<T, V>& vec) {
  *reinterpret_cast<Vec<T, V>*>(to) = vec;
}

template <class A> __host__ __device__ constexpr A smaller(A a, A b) { return b < a ? b : a; }
template <class A> __host__ __device__ constexpr A larger(A a, A b) { return a < b ? b : a; }

}  // namespace tensus::cuda
