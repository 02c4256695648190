// How popular entities are as answers of one relation, whatever a walk reaches: see Popularity in frontier.h.
//
// The popular entities that a walk does not reach have no rows of their own. What they add to sums over all entities
// depends on the relation alone, but for those that a query rules out, and these are taken out again.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "frontier.h"

namespace tensus {

// The entities that are not reached and compete with the answer of a query.
struct Rest {
  int64_t plain = 0;        // with the score 0
  int64_t popular = 0;      // with the score weight * log(1 + count)
  double logs = 0;          // the sum of log(1 + count) over the popular ones
  double exponentials = 0;  // of exp(score - peak)
  double slopes = 0;        // of exp(score - peak) log(1 + count)
};

// The popular answers of one relation at a time. Made once for each thread.
template <class Real> class Standing {
 public:
  explicit Standing(const Walk& walk) : p_(walk.popularity), place_(p_.ptr ? walk.graph.entities : 0, -1) {}

  void turn_to(int64_t relation) {
    if (!p_.ptr || relation == relation_) return;
    for (int64_t k = 0; k < count(); ++k) place_[entity(k)] = -1;
    relation_ = relation;
    log_.resize(count());
    exponential_.resize(count());
    all_ = Rest();
    peak_ = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < count(); ++k) {
      place_[entity(k)] = int32_t(k);
      log_[k] = std::log1p(double(times(k)));
      peak_ = std::max(peak_, double(weight()) * log_[k]);
    }
    for (int64_t k = 0; k < count(); ++k) {
      exponential_[k] = std::exp(double(weight()) * log_[k] - peak_);
      add(all_, k, 1);
    }
  }

  int64_t count() const { return relation_ < 0 ? 0 : p_.ptr[relation_ + 1] - p_.ptr[relation_]; }
  int64_t entity(int64_t k) const { return p_.entity[p_.ptr[relation_] + k]; }
  double log(int64_t k) const { return log_[k]; }
  double peak() const { return peak_; }  // the highest score that popularity alone gives
  Real weight() const { return p_.ptr ? static_cast<const Real*>(p_.weight)[relation_] : Real(0); }

  // log(1 + count) of any entity.
  double log_of(int64_t entity) const { return place(entity) < 0 ? 0.0 : log_[place(entity)]; }

  // The same with one fact less.
  double log_without_one(int64_t entity) const {
    return place(entity) < 0 ? 0.0 : std::log(double(times(place(entity))));
  }

  // All of so many entities.
  Rest all(int64_t entities) const {
    Rest rest = all_;
    rest.plain = entities - rest.popular;
    return rest;
  }

  void take_out(Rest& rest, int64_t entity) const {
    if (place(entity) < 0) {
      --rest.plain;
      return;
    }
    add(rest, place(entity), -1);
  }

  void put_in(Rest& rest, int64_t k) const { add(rest, k, 1); }

  // Whether what is left of all exponentials may be rounding.
  bool little_of(const Rest& rest) const { return p_.ptr && rest.exponentials < 1e-6 * all_.exponentials; }

 private:
  int32_t place(int64_t entity) const { return p_.ptr ? place_[entity] : -1; }
  int32_t times(int64_t k) const { return p_.count[p_.ptr[relation_] + k]; }

  void add(Rest& rest, int64_t k, int sign) const {
    rest.popular += sign;
    rest.logs += sign * log_[k];
    rest.exponentials += sign * exponential_[k];
    rest.slopes += sign * exponential_[k] * log_[k];
  }

  const Popularity& p_;
  std::vector<int32_t> place_;             // of every entity among the popular ones of the relation, or -1
  std::vector<double> log_, exponential_;  // of these
  Rest all_;                               // but for the plain ones
  double peak_ = 0;
  int64_t relation_ = -1;
};

}  // namespace tensus
