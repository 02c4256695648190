#include "frontier.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <vector>

#include "column_exp.h"
#include "popularity.h"
#include "walk_block.h"

namespace tensus {
namespace {

constexpr int64_t kPieces = 64;  // of a batch, about: each has a gradient of its own, added up in their order

struct Piece {
  int64_t first, last;
};

// The queries of one relation, cut into pieces whose length does not depend on the number of threads.
std::vector<Piece> cut(const WalkQueries& q, int64_t width) {
  const int64_t blocks = (q.count + width * kPieces - 1) / (width * kPieces);
  std::vector<Piece> pieces;
  for (int64_t first = 0, last; first < q.count; first = last) {
    for (last = first + 1; last < q.count && q.relation[last] == q.relation[first] && last < first + blocks * width;)
      ++last;
    pieces.push_back({first, last});
  }
  return pieces;
}

// Calls visit(block, piece) on the threads of the team: for every block of every piece, after its walk.
template <class Real, int B, class Visit> void each_block(const Walk& walk, bool walks, const Visit& visit) {
  const std::vector<Piece> pieces = cut(walk.queries, B);
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      Block<Real, B> block(walk);
      for (size_t n; (n = next++) < pieces.size();)
        for (int64_t first = pieces[n].first; first < pieces[n].last; first += B) {
          const int64_t last = std::min(first + B, pieces[n].last);
          if (walks) block.forward(first, last);
          else block.begin(first, last);
          visit(block, n);
          block.leave();
        }
    } catch (...) {  // out of memory: not to be thrown across the threads of another library
      const std::lock_guard<std::mutex> lock(mutex);
      failure = std::current_exception();
    }
  };
  walk.team([](void* context) { (*static_cast<decltype(work)*>(context))(); },
            const_cast<void*>(static_cast<const void*>(&work)));
  if (failure) std::rethrow_exception(failure);
}

// ---------------------------------------------------------------------------------------------- loss

// The loss of each column; the scores become the gradient of sum_n share[n] loss[n].
template <class Real, int B>
void exponential_loss(Block<Real, B>& block, const WalkQueries& q, const Real* share, Real* loss) {
  const int64_t rows = block.reached();
  Real* x = block.sink();
  Real high[B] = {}, answer[B] = {};
  double total[B] = {};
  Rest rest[B];
  const double peak = block.standing().peak();
  for (int64_t c = 0; c < block.columns(); ++c) {
    const int64_t a = q.answer[block.first() + c];
    answer[c] = block.score(a, c);
    rest[c] = block.rule_out(c);
    high[c] = block.slot(a) < 0 ? answer[c] : -std::numeric_limits<Real>::infinity();
    if (rest[c].plain > 0) high[c] = std::max(high[c], Real(0));
    if (rest[c].exponentials > 0) high[c] = std::max(high[c], Real(peak + std::log(rest[c].exponentials)));
  }
  exponentiate(Width<B>(), x, rows, high, total);
  Real scale[B] = {};
  for (int64_t c = 0; c < block.columns(); ++c) {
    const int64_t n = block.first() + c, a = q.answer[n];
    const double top = double(high[c]), of_popular = std::exp(peak - top);
    const double of_answer = block.slot(a) < 0 ? std::exp(double(answer[c]) - top) : 0.0;
    total[c] += double(rest[c].plain) * std::exp(-top) + rest[c].exponentials * of_popular + of_answer;
    loss[n] = Real(std::log(total[c]) + top - double(answer[c]));
    const double factor = double(share[n]) / total[c];
    scale[c] = Real(factor);
    block.add_to_popularity_gradient(factor * rest[c].slopes * of_popular);
    if (block.slot(a) < 0)
      block.add_to_popularity_gradient((factor * of_answer - double(share[n])) * block.popularity(a, c));
  }
  for (int64_t n = 0; n < rows; ++n)
    for (int c = 0; c < B; ++c) x[n * B + c] *= scale[c];
  for (int64_t c = 0; c < block.columns(); ++c)
    if (const int64_t at = block.slot(q.answer[block.first() + c]); at >= 0) x[at * B + c] -= share[block.first() + c];
}

template <class Real, int B>
void linear_loss(Block<Real, B>& block, const WalkQueries& q, double floor, const Real* share, Real* loss) {
  const int64_t rows = block.reached();
  Real* x = block.sink();
  for (int64_t c = 0; c < B; ++c) {
    if (c >= block.columns()) {
      for (int64_t n = 0; n < rows; ++n) x[n * B + c] = 0;
      continue;
    }
    const int64_t query = block.first() + c, at = block.slot(q.answer[query]);
    const double answer = double(block.score(q.answer[query], c)) + floor;
    const Rest rest = block.rule_out(c);
    double total = floor * double(rest.plain + rest.popular) + double(block.standing().weight()) * rest.logs;
    if (at < 0) total += answer;
    for (int64_t n = 0; n < rows; ++n)
      if (std::isfinite(x[n * B + c])) total += double(x[n * B + c]) + floor;
    loss[query] = Real(std::log(total) - std::log(answer));
    for (int64_t n = 0; n < rows; ++n)
      x[n * B + c] = std::isfinite(x[n * B + c]) ? Real(share[query] / total) : Real(0);
    if (at >= 0) x[at * B + c] -= Real(share[query] / answer);
    const double of_answer = at < 0 ? (share[query] / total - share[query] / answer) : 0.0;
    block.add_to_popularity_gradient(share[query] / total * rest.logs +
                                     of_answer * block.popularity(q.answer[query], c));
  }
}

template <class Real, int B> void loss_of(const Walk& walk, Likelihood f, const Real* share, Real* loss) {
  const WalkDag& dag = walk.dag;
  const bool wanted = dag.link_count > 0 && dag.links[0].dw;
  const std::vector<Piece> pieces = cut(walk.queries, B);
  const int64_t parameters = weight_offset(walk, dag.link_count) + 1;  // and the popularity's
  std::vector<std::vector<Real>> gradients(pieces.size());
  each_block<Real, B>(walk, true, [&](Block<Real, B>& block, size_t piece) {
    if (f.exponential) exponential_loss(block, walk.queries, share, loss);
    else linear_loss(block, walk.queries, f.floor, share, loss);
    if (!wanted) return;
    gradients[piece].resize(parameters);
    block.backward(gradients[piece].data());
  });
  if (!wanted) return;
  for (size_t n = 0; n < pieces.size(); ++n) {
    const int64_t relation = walk.queries.relation[pieces[n].first];
    for (int64_t e = 0; e < dag.link_count; ++e) {
      Real* dw = static_cast<Real*>(dag.links[e].dw) + relation * weight_count(walk, e);
      const Real* part = gradients[n].data() + weight_offset(walk, e);
      for (int64_t k = 0; k < weight_count(walk, e); ++k) dw[k] += part[k];
    }
    if (walk.popularity.dweight) static_cast<Real*>(walk.popularity.dweight)[relation] += gradients[n].back();
  }
}

template <class Real, int B> void scores_of(const Walk& walk, Real* scores) {
  const int64_t entities = walk.graph.entities;
  std::fill(scores, scores + walk.queries.count * entities, Real(0));
  each_block<Real, B>(walk, true, [&](Block<Real, B>& block, size_t) {
    const auto set = [&](int64_t c, int64_t entity) {
      scores[(block.first() + c) * entities + entity] = block.score(entity, c);
    };
    for (int64_t c = 0; c < block.columns(); ++c) {
      for (int64_t n = 0; n < block.reached(); ++n) set(c, block.entity(n));
      block.each_popular_unreached([&](int64_t k) { set(c, block.standing().entity(k)); });
    }
  });
}

template <class Real, int B> void ranks_of(const Walk& walk, int64_t* higher, int64_t* equal) {
  each_block<Real, B>(walk, true, [&](Block<Real, B>& block, size_t) {
    for (int64_t c = 0; c < block.columns(); ++c) {
      const int64_t query = block.first() + c, answer = walk.queries.answer[query];
      const Real x = block.score(answer, c);
      const int64_t plain = block.rule_out(c).plain;
      int64_t above = x < 0 ? plain : 0, same = x == 0 ? plain : 0;
      const auto count = [&](Real other, int64_t times) {
        above += times * (other > x);
        same += times * (other == x);
      };
      for (int64_t n = 0; n < block.reached(); ++n) count(block.sink()[n * B + c], 1);
      const Standing<Real>& standing = block.standing();
      block.each_popular_unreached([&](int64_t k) { count(standing.weight() * Real(standing.log(k)), 1); });
      // But for those that do not compete.
      const auto ignore = [&](int64_t v) {
        if (block.slot(v) < 0 && standing.log_of(v) > 0) count(standing.weight() * Real(standing.log_of(v)), -1);
      };
      block.each_other(c, ignore);
      ignore(answer);
      higher[query] = above;
      equal[query] = same - (block.slot(answer) >= 0);
    }
  });
}

template <class Real, int B> void costs_of(const Walk& walk, int64_t* edges) {
  each_block<Real, B>(walk, false, [&](Block<Real, B>& block, size_t) {
    const int64_t cost = block.cost();
    for (int64_t c = 0; c < block.columns(); ++c) edges[block.first() + c] = cost;
  });
}

}  // namespace

template <class Real> void walk_loss(const Walk& walk, Likelihood f, const Real* share, Real* loss) {
  if (walk.width == 1) loss_of<Real, 1>(walk, f, share, loss);
  else loss_of<Real, kWidth>(walk, f, share, loss);
}

template <class Real> void walk_scores(const Walk& walk, Real* scores) {
  if (walk.width == 1) scores_of<Real, 1>(walk, scores);
  else scores_of<Real, kWidth>(walk, scores);
}

template <class Real> void walk_ranks(const Walk& walk, int64_t* higher, int64_t* equal) {
  if (walk.width == 1) ranks_of<Real, 1>(walk, higher, equal);
  else ranks_of<Real, kWidth>(walk, higher, equal);
}

void walk_costs(const Walk& walk, int64_t* edges) {
  if (walk.width == 1) costs_of<float, 1>(walk, edges);
  else costs_of<float, kWidth>(walk, edges);
}

template void walk_loss(const Walk&, Likelihood, const float*, float*);
template void walk_loss(const Walk&, Likelihood, const double*, double*);
template void walk_scores(const Walk&, float*);
template void walk_scores(const Walk&, double*);
template void walk_ranks<float>(const Walk&, int64_t*, int64_t*);
template void walk_ranks<double>(const Walk&, int64_t*, int64_t*);

}  // namespace tensus
