// Numbers, vectors of them in registers and in memory, and scratch memory on a cache line of its own.
//
// This header and those that include it are parts of kernels.cpp, which says why all code here has internal linkage.
#pragma once
#include <cstdint>
#include <new>

#define TENSUS_FORCE __attribute__((always_inline))
#define TENSUS_INLINE inline TENSUS_FORCE

namespace tensus {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kRegisters = 16;
#else
constexpr int kVectorBytes = 16, kRegisters = 16;
#endif

// Whether loops are unrolled for the usual sizes: not for x86 without AVX2, which few people run and all compile.
#if defined(__x86_64__) && !defined(__AVX2__)
constexpr bool kTuned = false;
#else
constexpr bool kTuned = true;
#endif

// Under a sanitizer, with which all of this takes minutes to compile, there are only the types that its test uses.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <class T> struct SumOf {
  using type = T;
};
template <> struct SumOf<BFloat16> {
  using type = float;
};
template <> struct SumOf<Float16> {
  using type = float;
};
template <class T> using Sum = typename SumOf<T>::type;

template <class A> constexpr int kLanes = kVectorBytes / int(sizeof(A));

template <class A, int L> struct PackOf {
  typedef A type __attribute__((vector_size(L * sizeof(A))));
  typedef A anywhere __attribute__((vector_size(L * sizeof(A)), aligned(sizeof(A))));
};
template <class A, int L> using Pack = typename PackOf<A, L>::type;
// A pack in memory. Not by memcpy, which may write to anything: every pointer at hand would be read anew after it.
template <class A, int L> using PackAnywhere = typename PackOf<A, L>::anywhere;

// Halves as their bits: to a float of the same value, and to the nearest half, or the even one of two. NaN stays NaN.
template <int L> struct Halves {
  using Bits = Pack<uint32_t, L>;
  using Floats = Pack<float, L>;

  static TENSUS_INLINE Floats widen(Bits half, BFloat16) { return (Floats)(half << 16); }

  static TENSUS_INLINE Bits narrow(Floats pack, BFloat16) {
    const auto bits = (Bits)pack;
    const auto rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const auto ordered = (Bits)(pack == pack);
    return (rounded & ordered) | (0x7fc0 & ~ordered);
  }

  // The exponent's bias is mended by a product, which numbers below the normal ones come out of exact, too.
  static TENSUS_INLINE Floats widen(Bits half, Float16) {
    const auto small = (half & 0x7fff) << 13;
    const auto scaled = (Floats)small * 0x1p112f;
    const auto infinite = (Bits)(scaled >= 0x1p16f) & 0x7f800000;  // or NaN
    return (Floats)((Bits)scaled | infinite | (half & 0x8000) << 16);
  }

  static TENSUS_INLINE Bits narrow(Floats pack, Float16) {
    const auto sign = (Bits)pack & 0x80000000, bits = (Bits)pack ^ sign;
    const auto normal = (bits - 0x37fff001 + (bits >> 13 & 1)) >> 13;
    const auto shifted = (Bits)((Floats)bits + 0.5f) - 0x3f000000;  // the sum rounds where a small half ends
    const auto is_small = (Bits)(bits < 0x38800000), is_large = (Bits)(bits >= 0x47800000);
    const auto large = 0x7c00 | ((Bits)(bits > 0x7f800000) & 0x0200);
    return (shifted & is_small) | (large & is_large) | (normal & ~is_small & ~is_large) | sign >> 16;
  }
};

template <int L, class T> TENSUS_INLINE Pack<Sum<T>, L> load(const T* from) {
  if constexpr (sizeof(T) == sizeof(uint16_t)) {
    const Pack<uint16_t, L> half = *(const PackAnywhere<uint16_t, L>*)from;
    return Halves<L>::widen(__builtin_convertvector(half, Pack<uint32_t, L>), T{});
  } else {
    return *(const PackAnywhere<T, L>*)from;
  }
}

template <int L, class T> TENSUS_INLINE void store(T* to, Pack<Sum<T>, L> pack) {
  if constexpr (sizeof(T) == sizeof(uint16_t)) {
    *(PackAnywhere<uint16_t, L>*)to = __builtin_convertvector(Halves<L>::narrow(pack, T{}), Pack<uint16_t, L>);
  } else {
    *(PackAnywhere<T, L>*)to = pack;
  }
}

template <class A> TENSUS_INLINE A smaller(A a, A b) { return b < a ? b : a; }

// Calls tile<V, L>(f) over f = 0 .. size: V vectors of L lanes at a time, then fewer, then four lanes, then one.
template <class A, int V, class Tile> TENSUS_INLINE void for_tiles(int64_t size, const Tile& tile) {
  constexpr int L = kLanes<A>;
  int64_t f = 0;
  for (; f + V * L <= size; f += V * L) tile.template operator()<V, L>(f);
  if constexpr (V > 4)
    for (; f + 4 * L <= size; f += 4 * L) tile.template operator()<4, L>(f);
  if constexpr (V == 4)
    for (; f + 2 * L <= size; f += 2 * L) tile.template operator()<2, L>(f);
  if constexpr (V > 1)
    for (; f + L <= size; f += L) tile.template operator()<1, L>(f);
  if constexpr (L > 4)
    for (; f + 4 <= size; f += 4) tile.template operator()<1, 4>(f);
  for (; f < size; ++f) tile.template operator()<1, 1>(f);
}

// Uninitialised memory on a cache line of its own.
template <class A> class Scratch {
 public:
  explicit Scratch(int64_t size) : data_((A*)::operator new(size * sizeof(A) + 64, std::align_val_t(64))) {}
  ~Scratch() { ::operator delete(data_, std::align_val_t(64)); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  A* get() const { return data_; }
  A& operator[](int64_t i) const { return data_[i]; }

 private:
  A* data_;
};

}  // namespace
}  // namespace tensus
