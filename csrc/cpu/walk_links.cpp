#include "walk_links.h"

namespace tensus {
namespace {

// Edges of a row with one operator are a run: they share the mixed state that they carry.

template <class Real, int B, int kQ> TENSUS_INLINE void push_along(const LinkJob<Real, B>& job) {
  using X = Columns<Real, B>;
  const int64_t P = job.P, Q = kQ ? kQ : job.Q;
  const View<Real> view = job.view;
  X kept[kQ ? kQ : 1];
  X* mixed = kQ ? kept : job.room;
  for (int64_t n = 0; n < job.row_count; ++n) {
    const X* tail = job.tail + job.rows[n] * P;
    job.hidden->template each_stretch<Real, B>(
        view, job.rows[n], [&](int64_t first, int64_t last, const auto& value) __attribute__((always_inline)) {
          for (int64_t e = first; e < last;) {
            const int32_t op = view.op[e];
            const Real* w = job.w + op * P * Q;
            for (int64_t q = 0; q < Q; ++q) mixed[q] = w[q] * tail[0];
            for (int64_t p = 1; p < P; ++p)
              for (int64_t q = 0; q < Q; ++q) mixed[q] += w[p * Q + q] * tail[p];
            do {
              X* head = job.head + view.target[e] * Q;
              const auto x = value(e);
              for (int64_t q = 0; q < Q; ++q) head[q] += x * mixed[q];
            } while (++e < last && view.op[e] == op);
          }
        });
  }
}

template <class Real, int B, int kP, int kQ> TENSUS_INLINE void pull_along(const LinkJob<Real, B>& job) {
  using X = Columns<Real, B>;
  const int64_t P = kP ? kP : job.P, Q = kQ ? kQ : job.Q;
  const View<Real> view = job.view;
  X kept[kQ ? kQ : 1];
  X* sum = kQ ? kept : job.room;
  for (int64_t n = 0; n < job.row_count; ++n) {
    const X* tail = job.tail + job.rows[n] * P;
    X* tail_grad = job.tail_grad + job.rows[n] * P;
    X of_row[kP ? kP : 1] = {};  // in registers until the row is done
    X* grad = kP ? of_row : tail_grad;
    job.hidden->template each_stretch<Real, B>(
        view, job.rows[n], [&](int64_t first, int64_t last, const auto& value) __attribute__((always_inline)) {
          for (int64_t e = first; e < last;) {
            const int32_t op = view.op[e];
            for (int64_t q = 0; q < Q; ++q) sum[q] = X{};
            do {
              const X* head = job.head + view.target[e] * Q;
              const auto x = value(e);
              for (int64_t q = 0; q < Q; ++q) sum[q] += x * head[q];
            } while (++e < last && view.op[e] == op);
            const Real* w = job.w + op * P * Q;
            Partial<Real, B>* dw = job.dw + op * P * Q;
            for (int64_t p = 0; p < P; ++p)
              for (int64_t q = 0; q < Q; ++q) {
                add_product(dw[p * Q + q], tail[p], sum[q]);
                grad[p] += w[p * Q + q] * sum[q];
              }
          }
        });
    if constexpr (kP > 0)
      for (int64_t p = 0; p < P; ++p) tail_grad[p] += of_row[p];
  }
}

// Calls run<rank>(), or run<0>() where the rank is not known at compile time.
template <class Run> TENSUS_INLINE void by_rank(int64_t rank, const Run& run) {
  switch (rank) {
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 3: return run.template operator()<3>();
    case 4: return run.template operator()<4>();
    default: return run.template operator()<0>();
  }
}

template <class Real, int B> TENSUS_INLINE void push_by_rank(const LinkJob<Real, B>& job) {
  by_rank(job.Q, [&]<int kQ>() __attribute__((always_inline)) { push_along<Real, B, kQ>(job); });
}

// Links to the sink, which has rank 1, meet most edges.
template <class Real, int B> TENSUS_INLINE void pull_by_rank(const LinkJob<Real, B>& job) {
  if (job.Q == 1) by_rank(job.P, [&]<int kP>() __attribute__((always_inline)) { pull_along<Real, B, kP, 1>(job); });
  else by_rank(job.Q, [&]<int kQ>() __attribute__((always_inline)) { pull_along<Real, B, 0, kQ>(job); });
}

}  // namespace

#define TENSUS_LINKS(Real, B)                                                          \
  TENSUS_CLONES void push(const LinkJob<Real, B>& job) { push_by_rank<Real, B>(job); } \
  TENSUS_CLONES void pull(const LinkJob<Real, B>& job) { pull_by_rank<Real, B>(job); }
TENSUS_LINKS(float, 1)
TENSUS_LINKS(double, 1)
TENSUS_LINKS(float, kWidth)
TENSUS_LINKS(double, kWidth)

}  // namespace tensus
