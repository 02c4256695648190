// A few walks side by side: what their frontier is, how they go forward, and how gradients come back.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "columns.h"
#include "frontier.h"
#include "popularity.h"
#include "walk_links.h"

namespace tensus {

constexpr int64_t kDenseShare = 4;  // from this part of all edges on, columns over all entities are cheaper

// How many weights link e has for one relation.
inline int64_t weight_count(const Walk& walk, int64_t e) {
  const WalkLink& link = walk.dag.links[e];
  return walk.graph.operators * walk.dag.ranks[link.tail] * walk.dag.ranks[link.head];
}

// Where those of link e begin among the weights of one relation; with e one past the last link, how many there are.
inline int64_t weight_offset(const Walk& walk, int64_t e) {
  int64_t sum = 0;
  for (int64_t k = 0; k < e; ++k) sum += weight_count(walk, k);
  return sum;
}

// Some queries of one relation, as columns over the entities that they reach. Made once for each thread.
template <class Real, int B> class Block {
 public:
  using X = Columns<Real, B>;

  explicit Block(const Walk& walk)
      : walk_(walk), standing_(walk), slot_(walk.graph.entities, -1), states_(walk.dag.states), grads_(walk.dag.states),
        hidden_(walk.graph.entities) {
    room_.resize(B * *std::max_element(walk.dag.ranks, walk.dag.ranks + walk.dag.states));
  }

  // Walks from the queries first .. last, all of one relation.
  void forward(int64_t first, int64_t last) {
    begin(first, last);
    const WalkDag& dag = walk_.dag;
    for (int64_t k = 0; k < dag.states; ++k) set_to_zero(states_[k], k);
    for (int64_t c = 0; c < columns_; ++c) states_[0][slot_[walk_.queries.start[first_ + c]] * B + c] = 1;
    for (int64_t e = 0; e < dag.link_count; ++e) push(job(e, nullptr));
    add_popularity();
  }

  // After forward, with the gradient of the scores in `sink`; adds to dw, which has the links of one relation.
  void backward(Real* dw) {
    const WalkDag& dag = walk_.dag;
    for (int64_t k = 0; k < dag.states - 1; ++k) set_to_zero(grads_[k], k);
    grads_[dag.states - 1].swap(states_[dag.states - 1]);
    const int64_t count = weight_offset(walk_, dag.link_count);
    dw_.assign(count * sizeof(Partial<Real, B>) / sizeof(Real), 0);
    auto* sums = reinterpret_cast<Partial<Real, B>*>(dw_.data());
    for (int64_t e = dag.link_count - 1; e >= 0; --e) pull(job(e, sums + weight_offset(walk_, e)));
    for (int64_t k = 0; k < count; ++k) dw[k] += total<Real, B>(sums[k]);
    dw[count] += Real(popularity_gradient());
    grads_[dag.states - 1].swap(states_[dag.states - 1]);
  }

  // Forgets what was reached. A block must be left before the next one begins.
  void leave() {
    if (dense_) std::fill(slot_.begin(), slot_.end(), -1);
    else
      for (int64_t v : reached_) slot_[v] = -1;
    hidden_.clear();
  }

  int64_t columns() const { return columns_; }
  int64_t first() const { return first_; }
  int64_t reached() const { return size(walk_.dag.states - 1); }
  int64_t slot(int64_t entity) const { return slot_[entity]; }
  int64_t entity(int64_t slot) const { return dense_ ? slot : reached_[slot]; }
  Real* sink() { return states_.back().data(); }  // (reached, B)
  const Standing<Real>& standing() const { return standing_; }

  Real score(int64_t entity, int64_t c) {
    return slot_[entity] < 0 ? standing_.weight() * Real(popularity(entity, c)) : sink()[slot_[entity] * B + c];
  }

  // log(1 + count) of an entity, the query's own fact not counted.
  double popularity(int64_t entity, int64_t c) const {
    const WalkQueries& q = walk_.queries;
    const bool own = q.own[first_ + c] >= 0 && q.answer[first_ + c] == entity;
    return own ? standing_.log_without_one(entity) : standing_.log_of(entity);
  }

  // Calls visit(number) for the popular entities that are not reached.
  template <class Visit> void each_popular_unreached(const Visit& visit) const {
    for (int64_t k = 0; k < standing_.count(); ++k)
      if (slot_[standing_.entity(k)] < 0) visit(k);
  }

  // What the score of an entity that is not reached says about the weight of popularity.
  void add_to_popularity_gradient(double x) { popularity_gradient_ += x; }

  // Calls visit(entity) for the known answers of a column other than its answer.
  template <class Visit> void each_other(int64_t c, const Visit& visit) const {
    const WalkQueries& q = walk_.queries;
    for (int64_t k = q.known_ptr[first_ + c]; k < q.known_ptr[first_ + c + 1]; ++k)
      if (q.known[k] != q.answer[first_ + c]) visit(q.known[k]);
  }

  // Sets the scores of known answers other than the answer to -inf; returns the entities that compete with the answer
  // and were not reached (the answer not counted).
  Rest rule_out(int64_t c) {
    Rest rest = rest_;
    const int64_t answer = walk_.queries.answer[first_ + c];
    if (slot_[answer] < 0) standing_.take_out(rest, answer);
    each_other(c, [&](int64_t v) {
      if (slot_[v] < 0) standing_.take_out(rest, v);
      else sink()[slot_[v] * B + c] = -std::numeric_limits<Real>::infinity();
    });
    if (standing_.little_of(rest)) recount(rest, c);
    return rest;
  }

  // Edges that all links look at.
  int64_t cost() const {
    int64_t sum = 0;
    for (int64_t e = 0; e < walk_.dag.link_count; ++e)
      for (int64_t n = 0; n < rows_at(walk_.dag.links[e].tail); ++n)
        sum += view_.ptr[rows_[n] + 1] - view_.ptr[rows_[n]];
    return sum;
  }

  void begin(int64_t first, int64_t last) {
    first_ = first, columns_ = last - first;
    relation_ = walk_.queries.relation[first];
    standing_.turn_to(relation_);
    reach();
    if (dense_) take_everything();
    else take_reached();
    hide_own();
  }

 private:
  // The rest again, one by one: where little is left of large sums, it is not what their difference says.
  void recount(Rest& rest, int64_t c) {
    constexpr int32_t kIgnored = -2;
    const auto set = [&](int64_t v, int32_t from, int32_t to) {
      if (slot_[v] == from) slot_[v] = to;
    };
    const int64_t answer = walk_.queries.answer[first_ + c];
    each_other(c, [&](int64_t v) { set(v, -1, kIgnored); });
    set(answer, -1, kIgnored);
    rest.popular = 0, rest.logs = rest.exponentials = rest.slopes = 0;
    each_popular_unreached([&](int64_t k) {
      if (slot_[standing_.entity(k)] != kIgnored) standing_.put_in(rest, k);
    });
    each_other(c, [&](int64_t v) { set(v, kIgnored, -1); });
    set(answer, kIgnored, -1);
  }

  // What is reached in 0, 1, ... steps, but for the last step, which most edges belong to.
  void reach() {
    const FactGraph& g = walk_.graph;
    const int64_t depth = walk_.dag.depth[walk_.dag.states - 1];
    reached_.clear();
    bounds_.clear();
    for (int64_t c = 0; c < columns_; ++c) visit(walk_.queries.start[first_ + c]);
    bounds_.push_back(int64_t(reached_.size()));
    int64_t done = 0, edges = 0;
    for (int64_t t = 1; t < depth; ++t) {
      for (; done < bounds_.back(); ++done)
        for (int64_t e = g.ptr[reached_[done]]; e < g.ptr[reached_[done] + 1]; ++e) visit(g.target[e]);
      bounds_.push_back(int64_t(reached_.size()));
    }
    for (int64_t v : reached_) edges += g.ptr[v + 1] - g.ptr[v];
    dense_ = kDenseShare * edges > g.edges;
  }

  TENSUS_INLINE int32_t visit(int64_t v) {
    if (slot_[v] < 0) {
      slot_[v] = int32_t(reached_.size());
      reached_.push_back(v);
    }
    return slot_[v];
  }

  // Columns over all entities, which keep their numbers.
  void take_everything() {
    const FactGraph& g = walk_.graph;
    rows_.clear();
    for (int64_t t = 0, first = 0; t < int64_t(bounds_.size()); first = bounds_[t++]) {
      // Those that take t steps, in the order of entities: so their edges are read one after the other.
      for (int64_t v = 0; v < g.entities; ++v)
        if (slot_[v] >= first && slot_[v] < bounds_[t]) rows_.push_back(v);
    }
    for (int64_t v = 0; v < g.entities; ++v) slot_[v] = int32_t(v);
    bounds_.push_back(g.entities);
    view_ = {g.ptr, g.op, g.target, static_cast<const Real*>(g.value)};
  }

  // Entities numbered as they are reached, with a copy of the edges that leave them.
  void take_reached() {
    const FactGraph& g = walk_.graph;
    const int64_t count = bounds_.back();
    const Real* value = static_cast<const Real*>(g.value);
    ptr_.assign(1, 0);
    op_.clear(), target_.clear(), value_.clear();
    for (int64_t n = 0; n < count; ++n) {
      const int64_t begin = g.ptr[reached_[n]], end = g.ptr[reached_[n] + 1];
      for (int64_t e = begin; e < end; ++e) target_.push_back(visit(g.target[e]));
      op_.insert(op_.end(), g.op + begin, g.op + end);
      value_.insert(value_.end(), value + begin, value + end);
      ptr_.push_back(int64_t(target_.size()));
    }
    bounds_.push_back(int64_t(reached_.size()));
    rows_.resize(count);
    for (int64_t n = 0; n < count; ++n) rows_[n] = n;
    view_ = {ptr_.data(), op_.data(), target_.data(), value_.data()};
  }

  // The edges of a query's own fact, there and back.
  void hide_own() {
    const FactGraph& g = walk_.graph;
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t fact = walk_.queries.own[first_ + c];
      if (fact < 0) continue;
      for (int64_t v : {walk_.queries.start[first_ + c], walk_.queries.answer[first_ + c]}) {
        const int64_t row = slot_[v];
        if (row < 0 || (!dense_ && row >= int64_t(rows_.size()))) continue;  // no walk leaves from there
        for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e)
          if (g.fact[e] == fact) hidden_.hide(row, view_.ptr[row] + e - g.ptr[v], c);
      }
    }
  }

  int64_t rows_at(int64_t state) const { return bounds_[walk_.dag.depth[state]]; }
  int64_t size(int64_t state) const { return dense_ ? walk_.graph.entities : rows_at(state); }

  // The rows of a state, or of its gradient, that walks can reach; there may be others, which are not looked at.
  void set_to_zero(Numbers<Real>& numbers, int64_t state) {
    const int64_t width = walk_.dag.ranks[state] * B, count = rows_at(state);
    if (int64_t(numbers.size()) < size(state) * width) numbers.resize(size(state) * width);
    if (count == size(state)) std::fill_n(numbers.begin(), count * width, Real(0));
    else
      for (int64_t n = 0; n < count; ++n) std::fill_n(numbers.begin() + rows_[n] * width, width, Real(0));
  }

  LinkJob<Real, B> job(int64_t e, Partial<Real, B>* dw) {
    const WalkDag& dag = walk_.dag;
    const WalkLink& link = dag.links[e];
    const Real* w = static_cast<const Real*>(link.w) + relation_ * weight_count(walk_, e);
    return {view_,
            &hidden_,
            rows_.data(),
            rows_at(link.tail),
            dag.ranks[link.tail],
            dag.ranks[link.head],
            w,
            columns_of(states_[link.tail]),
            columns_of(dw ? grads_[link.head] : states_[link.head]),
            columns_of(grads_[link.tail]),
            dw,
            columns_of(room_)};
  }

  static X* columns_of(Numbers<Real>& numbers) { return reinterpret_cast<X*>(numbers.data()); }

  // To the scores of what is reached; the rest is counted.
  void add_popularity() {
    rest_ = standing_.all(walk_.graph.entities);
    for (int64_t n = 0; n < reached(); ++n) standing_.take_out(rest_, entity(n));
    popularity_gradient_ = 0;
    const Real weight = standing_.weight();
    each_popular_reached([&](int64_t at, int64_t c, double x) { sink()[at * B + c] += weight * Real(x); });
  }

  double popularity_gradient() const {
    const Real* grad = grads_.back().data();
    double sum = popularity_gradient_;
    each_popular_reached([&](int64_t at, int64_t c, double x) { sum += double(grad[at * B + c]) * x; });
    return sum;
  }

  // Calls visit(slot, column, log(1 + count)) for the popular entities that are reached, and then with what an own fact
  // counts too much.
  template <class Visit> void each_popular_reached(const Visit& visit) const {
    if (standing_.count() == 0) return;
    for (int64_t n = 0; n < reached(); ++n)
      if (const double x = standing_.log_of(entity(n)); x > 0)
        for (int64_t c = 0; c < columns_; ++c) visit(n, c, x);
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t answer = walk_.queries.answer[first_ + c];
      if (slot_[answer] >= 0) visit(slot_[answer], c, popularity(answer, c) - standing_.log_of(answer));
    }
  }

  const Walk& walk_;
  Standing<Real> standing_;
  Rest rest_;                       // of all entities, whatever a query rules out
  double popularity_gradient_ = 0;  // of entities that are not reached
  std::vector<int32_t> slot_;       // of every entity, -1 where it is not reached
  std::vector<int64_t> reached_;    // entities, as they are reached
  std::vector<int64_t> bounds_;     // how many are reached in 0, 1, ... steps
  std::vector<int64_t> rows_;       // the slots of those that walks leave from, the first reached first
  std::vector<int64_t> ptr_;        // the edges that leave these, where the block has its own
  std::vector<int32_t> op_, target_;
  std::vector<Real> value_;
  std::vector<Numbers<Real>> states_, grads_;  // (reached, rank, B), or more
  Numbers<Real> room_, dw_;
  View<Real> view_;
  HiddenEdges hidden_;
  int64_t first_ = 0, columns_ = 0, relation_ = 0;
  bool dense_ = false;
};

}  // namespace tensus
