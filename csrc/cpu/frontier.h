// Walks on a knowledge graph from one entity at a time: pointers and sizes, no torch in sight.
//
// A query (relation r, start s) has the state h_0 = one-hot at s, and along every link e = (j, k) of a DAG
//
//   h_k[v, q] += sum over edges (u, v) with operator i of value * sum_p w_e[r, i, p, q] h_j[u, p]
//
// The entries of the sink (rank 1) are the scores of the entities. A walk reaches few entities at first, so only what
// is reached is stored: nothing has the size of queries x entities. Entities that are not reached share the score 0,
// and enter sums over all entities in closed form. Queries of one relation can share a frontier, as columns of one
// block: that pays where they reach the same entities. Results do not depend on the number of threads, bit by bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace tensus {

// The edges that leave entity u are ptr[u] .. ptr[u + 1], those of one operator side by side. Every entity has an edge
// to itself (the identity), so what is reached in some steps is reached in more. An edge stands for a fact, or for none
// (-1).
struct FactGraph {
  int64_t entities, operators, edges;
  const int64_t* ptr;     // (entities + 1)
  const int32_t* target;  // (edges)
  const int32_t* op;      // (edges)
  const int32_t* fact;    // (edges)
  const void* value;      // (edges)
};

// A link of the DAG. Its weights are (relations, operators, ranks[tail], ranks[head]).
struct WalkLink {
  int64_t tail, head;
  const void* w;
  void* dw;  // laid out as w, added to; null where no gradient is wanted
};

// What the states have in common: state 0 is the source, the last one the sink; both have rank 1.
struct WalkDag {
  int64_t states, relations;
  const int64_t* ranks;   // (states)
  const int64_t* depth;   // (states): the longest way from the source, in links
  const WalkLink* links;  // sorted by head: a state is complete before it is passed on
  int64_t link_count;
};

// Queries, sorted by relation. The known answers of query n, known[known_ptr[n]] .. known[known_ptr[n + 1]], each once,
// do not compete with its answer, which may be among them.
struct WalkQueries {
  int64_t count;
  const int64_t* relation;
  const int64_t* start;
  const int64_t* answer;
  const int64_t* own;  // the fact (start, relation, answer), which is taken out of the graph for this query, or -1
  const int64_t* known_ptr;
  const int64_t* known;
};

// What speaks for an answer wherever the query starts: weight[r] * log(1 + n) is added to the score of an entity that
// is the answer of n facts of relation r, the query's own fact not counted.
struct Popularity {
  const int64_t* ptr;     // (relations + 1), or null: no such term
  const int32_t* entity;  // in ptr[r] .. ptr[r + 1], each once
  const int32_t* count;   // at least 1
  const void* weight;     // (relations)
  void* dweight;          // (relations), or null
};

struct Walk {
  FactGraph graph;
  WalkDag dag;
  Popularity popularity;
  WalkQueries queries;
  int64_t width;  // queries in a block: 1 or kWidth
  Team team;
};

constexpr int64_t kWidth = 16;

// How a score becomes a weight in the loss: exp(x), or x + floor for scores that are not negative.
struct Likelihood {
  bool exponential;
  double floor;
};

// loss[n] = log sum_v f(x_v) - log f(x_answer), v over all entities but other known answers; and, where the dw of the
// links are not null, the gradient of sum_n share[n] loss[n].
template <class Real> void walk_loss(const Walk&, Likelihood, const Real* share, Real* loss);

// scores[n * entities + v] of all entities.
template <class Real> void walk_scores(const Walk&, Real* scores);

// How many entities, other known answers aside, score higher than the answer, and how many others score the same.
template <class Real> void walk_ranks(const Walk&, int64_t* higher, int64_t* equal);

// edges[n]: how many edges query n looks at, in all links; the queries of a block share theirs, and have the same.
void walk_costs(const Walk&, int64_t* edges);

}  // namespace tensus
