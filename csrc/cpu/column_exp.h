// Exponentials of the columns of a state, as a softmax needs them.
#pragma once
#include <cstdint>
#include <type_traits>

#include "frontier.h"

namespace tensus {

template <int B> using Width = std::integral_constant<int, B>;

// x[n, c] <- exp(x[n, c] - high[c]), after high[c] has become the largest of itself and x[:, c]; x = -inf gives 0.
// total[c] += their sum.
void exponentiate(Width<1>, float* x, int64_t rows, float* high, double* total);
void exponentiate(Width<1>, double* x, int64_t rows, double* high, double* total);
void exponentiate(Width<kWidth>, float* x, int64_t rows, float* high, double* total);
void exponentiate(Width<kWidth>, double* x, int64_t rows, double* high, double* total);

}  // namespace tensus
