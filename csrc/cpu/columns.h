// One number for each query of a block, side by side: what the states of walks are made of.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

#include "arena.h"

// The loops over columns are compiled for several instruction sets, and the loader chooses among them.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(TENSUS_NO_CLONES)
#define TENSUS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TENSUS_CLONES
#endif
#define TENSUS_INLINE inline __attribute__((always_inline))

namespace tensus {

// Vectors of 32 bytes: where the machine has wider ones, two of these are as good, and where it has none, a wider type
// would be taken apart number by number.
template <class Real> struct LanesOf {
  typedef Real type __attribute__((vector_size(32)));
};
template <class Real> using Lanes = typename LanesOf<Real>::type;

template <class Real, int B> struct Wide {
  static constexpr int kParts = B * sizeof(Real) / sizeof(Lanes<Real>);
  Lanes<Real> part[kParts];
};

template <class Real, int B> TENSUS_INLINE Wide<Real, B> operator*(Real a, const Wide<Real, B>& x) {
  Wide<Real, B> y;
  for (int k = 0; k < y.kParts; ++k) y.part[k] = a * x.part[k];
  return y;
}

template <class Real, int B> TENSUS_INLINE Wide<Real, B> operator*(const Wide<Real, B>& a, const Wide<Real, B>& x) {
  Wide<Real, B> y;
  for (int k = 0; k < y.kParts; ++k) y.part[k] = a.part[k] * x.part[k];
  return y;
}

template <class Real, int B> TENSUS_INLINE void operator+=(Wide<Real, B>& y, const Wide<Real, B>& x) {
  for (int k = 0; k < y.kParts; ++k) y.part[k] += x.part[k];
}

// One number for each query of a block.
template <class Real, int B> using Columns = std::conditional_t<B == 1, Real, Wide<Real, B>>;

// A sum over the queries of a block, in parts.
template <class Real, int B> using Partial = std::conditional_t<B == 1, Real, Lanes<Real>>;

template <class Sum, class X> TENSUS_INLINE void add_product(Sum& sum, const X& x, const X& y) {
  if constexpr (std::is_same_v<Sum, X>) {
    sum += x * y;
  } else {
    for (int k = 0; k < X::kParts; ++k) sum += x.part[k] * y.part[k];
  }
}

template <class Real, int B> TENSUS_INLINE Real total(const Partial<Real, B>& sum) {
  if constexpr (B == 1) {
    return sum;
  } else {
    constexpr int kCount = sizeof(sum) / sizeof(Real);
    Real half[kCount];
    for (int c = 0; c < kCount; ++c) half[c] = sum[c];
    for (int n = kCount / 2; n > 0; n /= 2)
      for (int c = 0; c < n; ++c) half[c] += half[c + n];
    return half[0];
  }
}

// Memory for columns begins at a cache line, and lies in huge pages where it is large: its rows are met in random
// order. Vectors of numbers, not of columns: as an argument of a template, these would lose their alignment.
template <class T> struct LineAligned {
  using value_type = T;
  LineAligned() = default;
  template <class U> LineAligned(const LineAligned<U>&) {}
  T* allocate(size_t n) {
    return static_cast<T*>(large(n) ? acquire_block(n * sizeof(T))
                                    : ::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T* at, size_t n) {
    if (large(n)) release_block(at);
    else ::operator delete(at, std::align_val_t(64));
  }
  static bool large(size_t n) { return n * sizeof(T) >= kLarge / 4; }
  bool operator==(const LineAligned&) const { return true; }
};
template <class Real> using Numbers = std::vector<Real, LineAligned<Real>>;

template <class Real, int B> TENSUS_INLINE Real& lane(Columns<Real, B>* at, int64_t c) {
  return reinterpret_cast<Real*>(at)[c];
}

}  // namespace tensus
