#include "column_exp.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "columns.h"

namespace tensus {
namespace {

constexpr int64_t kChunk = 64;  // rows whose sum is taken in the type of x, before it goes into a double

typedef int32_t Integers __attribute__((vector_size(32)));
TENSUS_INLINE int32_t to_integer(float x) { return int32_t(x); }
TENSUS_INLINE Integers to_integer(Lanes<float> x) { return __builtin_convertvector(x, Integers); }
TENSUS_INLINE float to_float(int32_t x) { return float(x); }
TENSUS_INLINE Lanes<float> to_float(Integers x) { return __builtin_convertvector(x, Lanes<float>); }

// exp(y) for y <= 0, of one number or of several at once: 2^n times a polynomial. Below -88, n is -127, and 2^n is 0.
template <class Y> TENSUS_INLINE Y exponential(Y y) {
  const Y low = Y{} - 88.f;
  y = y < low ? low : y;
  const auto n = to_integer(y * 1.44269504f - 0.5f);
  const Y r = (y - to_float(n) * 0.693359375f) + to_float(n) * 2.12194440e-4f;
  Y p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  return p * std::bit_cast<Y>((n + 127) << 23);
}
TENSUS_INLINE double exponential(double y) { return std::exp(y); }
TENSUS_INLINE Lanes<double> exponential(Lanes<double> y) {
  for (int c = 0; c < 4; ++c) y[c] = std::exp(y[c]);
  return y;
}

template <class Real, int B>
TENSUS_INLINE void exponentiate_columns(Real* numbers, int64_t rows, Real* high, double* total) {
  using Part = Partial<Real, B>;
  constexpr int kParts = B * sizeof(Real) / sizeof(Part);
  Part* x = reinterpret_cast<Part*>(numbers);
  Part top[kParts];
  std::memcpy(top, high, sizeof top);
  for (int64_t n = 0; n < rows; ++n)
    for (int k = 0; k < kParts; ++k) top[k] = x[n * kParts + k] > top[k] ? x[n * kParts + k] : top[k];
  std::memcpy(high, top, sizeof top);
  for (int64_t begin = 0; begin < rows; begin += kChunk) {
    Part sum[kParts] = {};
    for (int64_t n = begin; n < std::min(begin + kChunk, rows); ++n)
      for (int k = 0; k < kParts; ++k) {
        x[n * kParts + k] = exponential(x[n * kParts + k] - top[k]);
        sum[k] += x[n * kParts + k];
      }
    Real of_chunk[B];
    std::memcpy(of_chunk, sum, sizeof sum);
    for (int c = 0; c < B; ++c) total[c] += double(of_chunk[c]);
  }
}

}  // namespace

#define TENSUS_EXPONENTIATE(Real, B)                                                            \
  TENSUS_CLONES void exponentiate(Width<B>, Real* x, int64_t rows, Real* high, double* total) { \
    exponentiate_columns<Real, B>(x, rows, high, total);                                        \
  }
TENSUS_EXPONENTIATE(float, 1)
TENSUS_EXPONENTIATE(double, 1)
TENSUS_EXPONENTIATE(float, kWidth)
TENSUS_EXPONENTIATE(double, kWidth)

}  // namespace tensus
