// Feature columns of several groups, cut into stripes of one group each.
//
// All stripes but the last are equally wide: all columns (U = kAll), U vectors, or one column (U = kEach). A weight is
// stored once for each stripe, side by side, so that the inner loops know nothing of groups: a vector of features
// takes one number for all its lanes, or a number for each.
#pragma once
#include <utility>

#include "../graph.h"
#include "vector.h"

namespace tensus {
namespace {

constexpr int kAll = 0, kEach = -1;

template <int U, class A> TENSUS_INLINE int64_t stripe_of(int64_t feature) {
  return U == kAll ? 0 : U == kEach ? feature : feature / (U * kLanes<A>);
}

template <int U, class A> TENSUS_INLINE int64_t count_stripes(int64_t features) {
  return U == kAll || features == 0 ? 1 : stripe_of<U, A>(features - 1) + 1;
}

// The weight of vector v, of L lanes, in a tile of features that begins at the stripe of `w`.
template <int U, int L, class A> TENSUS_INLINE auto weight_of(const A* w, int v) {
  if constexpr (U == kAll) return *w;
  else if constexpr (U == kEach) return load<L>(w + v * L);
  else return w[v * L / (U * kLanes<A>)];
}

// Inner products over stripes are left spread over lanes: each over all lanes of a vector, or single columns over one.
template <int U, class A> TENSUS_INLINE int64_t product_vectors(int64_t features) {
  return count_stripes<U == kEach ? 1 : U, A>(features);
}

// The lane from which the inner product over the stripe of a feature is spread, among those of all stripes.
template <int U, class A> TENSUS_INLINE int64_t lane_of(int64_t feature) {
  return U == kEach ? feature : stripe_of<U, A>(feature) * kLanes<A>;
}

// Where there are many, those of one row are written over those of the row before, rather than added to zeros. Lanes
// behind the last feature stay zero.
template <int U> constexpr bool kFresh = U != kAll;

template <int U, class A> TENSUS_INLINE bool begins_stripe(int64_t feature) {
  return U == kAll ? feature == 0 : U == kEach || feature % (U * kLanes<A>) == 0;
}

// Where many are to be added up, those of several vectors are braided into one: each is then spread over every fourth
// lane. Single columns can't be, nor a few lanes.
template <int U, class A> constexpr int kBraid = U == kEach || kLanes<A> < 4 ? 1 : 4;

// Lanes with bit D hold sums of two lanes of b, the others of a.
template <int D, class P, int... I> TENSUS_INLINE P interleave(P a, P b, std::integer_sequence<int, I...>) {
  constexpr int N = sizeof...(I);
  return __builtin_shufflevector(a, b, (I & D ? N + I : I)...) +
         __builtin_shufflevector(a, b, (I & D ? N + I - D : I + D)...);
}

// Lane i holds a part of the sum over the lanes of the vector i % 4.
template <class P> TENSUS_INLINE P braid(P a, P b, P c, P d) {
  constexpr auto lanes = std::make_integer_sequence<int, sizeof(P) / sizeof(a[0])>();
  return interleave<2>(interleave<1>(a, b, lanes), interleave<1>(c, d, lanes), lanes);
}

// `count` vectors, braided if they are to be.
template <int Braid, class P> TENSUS_INLINE const P* braid_all(const P* products, int64_t count, P* braided) {
  if constexpr (Braid == 1) return products;
  else {
    const auto at = [&](int64_t v) TENSUS_FORCE { return v < count ? products[v] : P{}; };
    for (int64_t v = 0; v < count; v += 4) braided[v / 4] = braid(at(v), at(v + 1), at(v + 2), at(v + 3));
    return braided;
  }
}

// Which group has which stripe.
template <class A, int U> class Stripes {
 public:
  Stripes(const Groups& groups, int64_t features) : groups_(groups), features_(features) {}

  int64_t count() const { return count_stripes<U, A>(features_); }
  int64_t product_vectors() const { return tensus::product_vectors<U, A>(features_); }
  int64_t groups() const { return groups_.count; }

  // visit(stripe, group) for all stripes.
  template <class Visit> void each(const Visit& visit) const {
    for (int64_t s = 0, g = 0; s < count(); ++s) {
      const int64_t feature = U == kAll ? 0 : U == kEach ? s : s * U * kLanes<A>;
      while (g + 1 < groups_.count && groups_.end[g] <= feature) ++g;
      visit(s, g);
    }
  }

  // Entry k of the inner products, over the columns of group g.
  A sum(const Pack<A, kLanes<A>>* products, int64_t k, int64_t g) const { return sum_every<1>(products, k, g); }

  A sum_braided(const Pack<A, kLanes<A>>* braided, int64_t k, int64_t g) const {
    return sum_every<kBraid<U, A>>(braided, k, g);
  }

 private:
  // Of vectors that hold `Braid` stripes each, or single columns.
  template <int Braid> A sum_every(const Pack<A, kLanes<A>>* products, int64_t k, int64_t g) const {
    constexpr int64_t step = U == kEach ? kLanes<A> : Braid;
    const int64_t begin = g ? groups_.end[g - 1] : 0, end = groups_.end ? groups_.end[g] : features_;
    A sum = 0;
    if (begin == end) return sum;
    const int64_t first = k * product_vectors() * (U == kEach ? kLanes<A> : 1);
    for (int64_t s = first + stripe_of<U, A>(begin); s <= first + stripe_of<U, A>(end - 1); ++s)
      for (int64_t l = s % step; l < kLanes<A>; l += step) sum += products[s / step][l];
    return sum;
  }

  const Groups groups_;
  const int64_t features_;
};

// Whether all borders between groups lie between stripes of this width.
inline bool fit(const Groups& groups, int64_t features, int64_t width) {
  for (int64_t g = 0; g + 1 < groups.count; ++g)
    if (groups.end[g] != features && groups.end[g] % width) return false;
  return true;
}

// Calls with_stripes<U>() with the widest stripes that fit: all columns, up to `Widest` vectors, single columns.
template <class A, int Widest, class WithStripes>
void for_stripes(const Groups& groups, int64_t features, const WithStripes& with_stripes) {
  if (fit(groups, features, features + 1)) return with_stripes.template operator()<kAll>();
  if constexpr (Widest > 1)
    if (fit(groups, features, Widest * kLanes<A>)) return with_stripes.template operator()<Widest>();
  if constexpr (Widest > 0)
    if (fit(groups, features, kLanes<A>)) return with_stripes.template operator()<1>();
  with_stripes.template operator()<kEach>();
}

}  // namespace
}  // namespace tensus
