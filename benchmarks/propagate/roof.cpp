// What the machine allows: loops that only move the data which a pass over the graph must move.
#include <immintrin.h>
#include <cstdint>

extern "C" {

// Read the rows h[col[e], 0..width) of all edges, and nothing else. `width` is a multiple of 8.
float gather(const float* h, int64_t width, const int32_t* col, int64_t edges) {
  float total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
  for (int64_t e = 0; e < edges; ++e) {
    if (e + 8 < edges) {
      const float* ahead = h + col[e + 8] * width;
      for (int64_t f = 0; f < width; f += 16) _mm_prefetch((const char*)(ahead + f), _MM_HINT_T0);
    }
    const float* row = h + col[e] * width;
    __m256 a = _mm256_setzero_ps(), b = a;
    int64_t f = 0;
    for (; f + 16 <= width; f += 16) {
      a = _mm256_add_ps(a, _mm256_loadu_ps(row + f));
      b = _mm256_add_ps(b, _mm256_loadu_ps(row + f + 8));
    }
    for (; f < width; f += 8) a = _mm256_add_ps(a, _mm256_loadu_ps(row + f));
    total += _mm256_cvtss_f32(_mm256_add_ps(a, b));
  }
  return total;
}

// Read one array and add it to `count` others: the least that a pass reads and writes in order.
void stream(const float* h, float* const* out, int64_t count, int64_t size) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < size / 8; ++i) {
    __m256 x = _mm256_loadu_ps(h + 8 * i);
    for (int64_t k = 0; k < count; ++k)
      _mm256_storeu_ps(out[k] + 8 * i, _mm256_add_ps(x, _mm256_loadu_ps(out[k] + 8 * i)));
  }
}
}
