// The operators of rules on knowledge graphs: schemas, and checks of the arguments. What they compute is in
// cpu/frontier.h.
//
// w holds the weights of every link of the DAG, one link after the other, each (relations, operators, ranks[tail],
// ranks[head]). graph is [ptr, target, op, fact, value]; popular is [ptr, entity, count], or empty; queries is
// [relation, start, answer, own, known_ptr, known], all int64.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "cpu/frontier.h"
#include "team.h"

namespace {

using namespace tensus;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Tensors = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

// A contiguous vector of this type on the CPU; of any length where `size` is negative.
Tensor vector(const Tensor& t, const char* name, ScalarType type, int64_t size = -1) {
  STD_TORCH_CHECK(t.is_cpu() && t.dim() == 1 && t.scalar_type() == type, name,
                  " must be a vector on the CPU, and have the right dtype");
  STD_TORCH_CHECK(size < 0 || t.numel() == size, name, " must have ", size, " elements, got ", t.numel());
  return torch::stable::contiguous(t);
}

template <class T> const T* data(const Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); }

template <class T> void check_ids(const Tensor& t, const char* name, int64_t lowest, int64_t size) {
  const T* x = data<T>(t);
  const auto wrong = [=](T id) { return id < lowest || id >= size; };
  const T* found = std::find_if(x, x + t.numel(), wrong);
  STD_TORCH_CHECK(found == x + t.numel(), name, " must lie in ", lowest, " .. ", size - 1, ", got ", *found);
}

// ptr[0] = 0 <= ptr[1] <= ... = size
void check_pointers(const Tensor& t, const char* name, int64_t size) {
  const int64_t *x = data<int64_t>(t), n = t.numel();
  STD_TORCH_CHECK(n > 0 && x[0] == 0 && x[n - 1] == size && std::is_sorted(x, x + n), name, " must rise from 0 to ",
                  size);
}

// The arguments, checked; it owns what the walk points to.
class Problem {
 public:
  Problem(const Tensor& w_, const std::optional<Tensor>& popularity, const Tensors& graph, const Tensors& popular,
          const Tensors& queries, const Ints& ranks, const Ints& tails, const Ints& heads, int64_t relations,
          int64_t width)
      : ranks_(ranks), relations_(relations) {
    real = w_.scalar_type();
    STD_TORCH_CHECK(real == ScalarType::Float || real == ScalarType::Double, "w must be float32 or float64");
    STD_TORCH_CHECK(width == 1 || width == kWidth, "width must be 1 or ", kWidth, ", got ", width);
    STD_TORCH_CHECK(relations > 0, "relations must be positive, got ", relations);
    w = vector(w_, "w", real);
    set_dag(tails, heads);
    set_graph(graph);
    set_popularity(popularity, popular);
    set_queries(queries);
    walk.width = width;
    walk.team = torch_team;
  }
  Problem(const Problem&) = delete;  // the walk points to its own parts

  // Where the gradients go, laid out as w and as the weights of popularity.
  void set_gradients(const Tensor& dw, const Tensor& dpopularity) {
    char* to = static_cast<char*>(dw.mutable_data_ptr());
    const char* from = static_cast<const char*>(w.const_data_ptr());
    for (WalkLink& link : links_) link.dw = to + (static_cast<const char*>(link.w) - from);
    if (walk.popularity.ptr) walk.popularity.dweight = dpopularity.mutable_data_ptr();
  }

  int64_t count() const { return walk.queries.count; }
  template <class Run> void typed(const Run& run) const {
    if (real == ScalarType::Double) run.template operator()<double>();
    else run.template operator()<float>();
  }

  Walk walk{};
  Tensor w;
  ScalarType real;

 private:
  // Links sorted by head, and the depth of every state.
  void set_dag(const Ints& tails, const Ints& heads) {
    const int64_t states = int64_t(ranks_.size());
    STD_TORCH_CHECK(states > 1 && ranks_.front() == 1 && ranks_.back() == 1,
                    "there must be two states or more, the first and the last of rank 1");
    STD_TORCH_CHECK(!tails.empty() && tails.size() == heads.size(),
                    "there must be as many tails as heads, at least one");
    int64_t weights = 0;
    for (size_t e = 0; e < tails.size(); ++e) {
      STD_TORCH_CHECK(0 <= tails[e] && tails[e] < heads[e] && heads[e] < states, "link ", e,
                      " must lead from a state to a later one");
      weights += rank(tails[e]) * rank(heads[e]);
    }
    STD_TORCH_CHECK(w.numel() > 0 && w.numel() % (relations_ * weights) == 0, "w must hold a multiple of ",
                    relations_ * weights, " numbers, got ", w.numel());
    walk.graph.operators = w.numel() / (relations_ * weights);
    depth_.assign(states, 0);
    std::vector<size_t> order(tails.size());
    for (size_t e = 0; e < order.size(); ++e) order[e] = e;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return heads[a] < heads[b]; });
    for (size_t e : order) depth_[heads[e]] = std::max(depth_[heads[e]], depth_[tails[e]] + 1);
    for (int64_t k = 1; k < states; ++k)
      STD_TORCH_CHECK(depth_[k] > 0 && depth_[k] <= depth_.back(), "state ", k, " must lie between source and sink");
    Ints offset(tails.size() + 1, 0);
    for (size_t e = 0; e < tails.size(); ++e)
      offset[e + 1] = offset[e] + relations_ * walk.graph.operators * rank(tails[e]) * rank(heads[e]);
    const char* first = static_cast<const char*>(w.const_data_ptr());
    for (size_t e : order) links_.push_back({tails[e], heads[e], first + offset[e] * w.element_size(), nullptr});
    walk.dag = {states, relations_, ranks_.data(), depth_.data(), links_.data(), int64_t(links_.size())};
  }

  int64_t rank(int64_t k) const {
    STD_TORCH_CHECK(ranks_[k] > 0, "the rank of state ", k, " must be positive, got ", ranks_[k]);
    return ranks_[k];
  }

  void set_graph(const Tensors& graph) {
    STD_TORCH_CHECK(graph.size() == 5, "graph must be [ptr, target, op, fact, value]");
    const int64_t edges = graph[1].numel();
    kept_ = {vector(graph[0], "ptr", ScalarType::Long), vector(graph[1], "target", ScalarType::Int),
             vector(graph[2], "op", ScalarType::Int, edges), vector(graph[3], "fact", ScalarType::Int, edges),
             vector(graph[4], "value", real, edges)};
    FactGraph& g = walk.graph;
    g.entities = kept_[0].numel() - 1;
    g.edges = edges;
    STD_TORCH_CHECK(g.entities <= INT32_MAX, "too many entities");
    check_pointers(kept_[0], "ptr", edges);
    check_ids<int32_t>(kept_[1], "target", 0, g.entities);
    check_ids<int32_t>(kept_[2], "op", 0, g.operators);
    g.ptr = data<int64_t>(kept_[0]);
    g.target = data<int32_t>(kept_[1]);
    g.op = data<int32_t>(kept_[2]);
    g.fact = data<int32_t>(kept_[3]);
    g.value = kept_[4].const_data_ptr();
    for (int64_t v = 0; v < g.entities; ++v)
      STD_TORCH_CHECK(std::find(g.target + g.ptr[v], g.target + g.ptr[v + 1], v) != g.target + g.ptr[v + 1], "entity ",
                      v, " must have an edge to itself");
  }

  void set_popularity(const std::optional<Tensor>& weight, const Tensors& popular) {
    STD_TORCH_CHECK(popular.size() == (weight ? 3u : 0u),
                    "popular must be [ptr, entity, count] with popularity, else []");
    if (!weight) return;
    const size_t first = kept_.size();
    kept_.push_back(vector(*weight, "popularity", real, relations_));
    kept_.push_back(vector(popular[0], "the pointers of popular", ScalarType::Long, relations_ + 1));
    kept_.push_back(vector(popular[1], "the entities of popular", ScalarType::Int));
    kept_.push_back(vector(popular[2], "the counts of popular", ScalarType::Int, popular[1].numel()));
    check_pointers(kept_[first + 1], "the pointers of popular", popular[1].numel());
    check_ids<int32_t>(kept_[first + 2], "the entities of popular", 0, walk.graph.entities);
    check_ids<int32_t>(kept_[first + 3], "the counts of popular", 1, INT32_MAX);
    walk.popularity = {data<int64_t>(kept_[first + 1]), data<int32_t>(kept_[first + 2]),
                       data<int32_t>(kept_[first + 3]), kept_[first].const_data_ptr(), nullptr};
  }

  void set_queries(const Tensors& queries) {
    STD_TORCH_CHECK(queries.size() == 6, "queries must be [relation, start, answer, own, known_ptr, known]");
    const int64_t count = queries[0].numel();
    const char* names[] = {"relation", "start", "answer", "own", "known_ptr", "known"};
    const size_t first = kept_.size();
    for (int k = 0; k < 6; ++k)
      kept_.push_back(vector(queries[k], names[k], ScalarType::Long, k < 4 ? count : k == 4 ? count + 1 : -1));
    const Tensor* q = &kept_[first];
    check_ids<int64_t>(q[0], "relation", 0, relations_);
    check_ids<int64_t>(q[1], "start", 0, walk.graph.entities);
    check_ids<int64_t>(q[2], "answer", 0, walk.graph.entities);
    check_pointers(q[4], "known_ptr", q[5].numel());
    check_ids<int64_t>(q[5], "known", 0, walk.graph.entities);
    const int64_t* relation = data<int64_t>(q[0]);
    STD_TORCH_CHECK(std::is_sorted(relation, relation + count), "queries must be sorted by relation");
    walk.queries = {count,
                    relation,
                    data<int64_t>(q[1]),
                    data<int64_t>(q[2]),
                    data<int64_t>(q[3]),
                    data<int64_t>(q[4]),
                    data<int64_t>(q[5])};
  }

  const Ints ranks_;
  const int64_t relations_;
  Ints depth_;
  std::vector<WalkLink> links_;
  Tensors kept_;
};

std::tuple<Tensor, Tensor, Tensor> rule_loss(const Tensor& w, const std::optional<Tensor>& popularity,
                                             const Tensor& share, const Tensors& graph, const Tensors& popular,
                                             const Tensors& queries, const Ints& ranks, const Ints& tails,
                                             const Ints& heads, int64_t relations, int64_t width, bool exponential,
                                             double floor, bool need_gradient) {
  Problem problem(w, popularity, graph, popular, queries, ranks, tails, heads, relations, width);
  const Tensor weight = vector(share, "share", problem.real, problem.count());
  const Tensor loss = torch::stable::new_empty(problem.w, {problem.count()});
  const Tensor dw = torch::stable::new_zeros(problem.w, {need_gradient ? problem.w.numel() : 0});
  const Tensor dpopularity = torch::stable::new_zeros(problem.w, {need_gradient && popularity ? relations : 0});
  if (need_gradient) problem.set_gradients(dw, dpopularity);
  problem.typed([&]<class Real>() {
    walk_loss<Real>(problem.walk, {exponential, floor}, data<Real>(weight),
                    static_cast<Real*>(loss.mutable_data_ptr()));
  });
  return {loss, dw, dpopularity};
}

Tensor rule_scores(const Tensor& w, const std::optional<Tensor>& popularity, const Tensors& graph,
                   const Tensors& popular, const Tensors& queries, const Ints& ranks, const Ints& tails,
                   const Ints& heads, int64_t relations, int64_t width) {
  Problem problem(w, popularity, graph, popular, queries, ranks, tails, heads, relations, width);
  const Tensor scores = torch::stable::new_empty(problem.w, {problem.count(), problem.walk.graph.entities});
  problem.typed([&]<class Real>() { walk_scores<Real>(problem.walk, static_cast<Real*>(scores.mutable_data_ptr())); });
  return scores;
}

std::tuple<Tensor, Tensor> rule_ranks(const Tensor& w, const std::optional<Tensor>& popularity, const Tensors& graph,
                                      const Tensors& popular, const Tensors& queries, const Ints& ranks,
                                      const Ints& tails, const Ints& heads, int64_t relations, int64_t width) {
  Problem problem(w, popularity, graph, popular, queries, ranks, tails, heads, relations, width);
  const Tensor higher = torch::stable::new_empty(queries[0], {problem.count()});
  const Tensor equal = torch::stable::new_empty(queries[0], {problem.count()});
  problem.typed([&]<class Real>() {
    walk_ranks<Real>(problem.walk, static_cast<int64_t*>(higher.mutable_data_ptr()),
                     static_cast<int64_t*>(equal.mutable_data_ptr()));
  });
  return {higher, equal};
}

Tensor rule_costs(const Tensor& w, const std::optional<Tensor>& popularity, const Tensors& graph,
                  const Tensors& popular, const Tensors& queries, const Ints& ranks, const Ints& tails,
                  const Ints& heads, int64_t relations, int64_t width) {
  Problem problem(w, popularity, graph, popular, queries, ranks, tails, heads, relations, width);
  const Tensor edges = torch::stable::new_empty(queries[0], {problem.count()});
  walk_costs(problem.walk, static_cast<int64_t*>(edges.mutable_data_ptr()));
  return edges;
}

}  // namespace

#define TENSUS_WALK                                                                                            \
  "Tensor[] graph, Tensor[] popular, Tensor[] queries, int[] ranks, int[] tails, int[] heads, int relations, " \
  "int width"

STABLE_TORCH_LIBRARY_FRAGMENT(tensus_tn, m) {
  m.def("rule_loss(Tensor w, Tensor? popularity, Tensor share, " TENSUS_WALK
        ", bool exponential, float floor, bool need_gradient) -> (Tensor, Tensor, Tensor)");
  m.def("rule_scores(Tensor w, Tensor? popularity, " TENSUS_WALK ") -> Tensor");
  m.def("rule_ranks(Tensor w, Tensor? popularity, " TENSUS_WALK ") -> (Tensor, Tensor)");
  m.def("rule_costs(Tensor w, Tensor? popularity, " TENSUS_WALK ") -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) {
  m.impl("rule_loss", TORCH_BOX(&rule_loss));
  m.impl("rule_scores", TORCH_BOX(&rule_scores));
  m.impl("rule_ranks", TORCH_BOX(&rule_ranks));
  m.impl("rule_costs", TORCH_BOX(&rule_costs));
}
