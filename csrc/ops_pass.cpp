// The operators that run one pass over some rows of a graph, for those who put the passes of a propagation together
// themselves: processes that exchange rows of the states in between. See library.cpp for what they take.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "cpu/select.h"
#include "ops_cpu.h"
#include "passes.h"

namespace {

using namespace tensus;

// The rows of a graph that a pass works on, and the weights of its links, checked.
class PassRows : public Checks {
 public:
  // The pass reads or writes rows below `states` of all states, and columns below `columns` of the one it gathers.
  PassRows(const Tensor& near, const Tensors& weights, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
           const MaybeTensor& loop, const MaybeTensor& seg_loop, const Tensors& structure, const Tensors& pairs,
           const MaybeTensor& rows, int64_t states, int64_t columns, bool from_tail)
      : Checks(near, [](const Tensor& t) { return t.is_cpu(); }), real(real_of(near)), rank(near.size(1)),
        features(near.size(2)), from_tail_(from_tail) {
    sums = near.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
    STD_TORCH_CHECK(!weights.empty(), "a pass must serve at least one link");
    relations = weights[0].dim() == 3 ? weights[0].size(0) : 0;
    for (const Tensor& w : weights) w_.push_back(check_weights(w));
    graph = rows_of(structure, "structure", seg_val, edge_val);
    graph.wide ? check_indices<int64_t>(columns) : check_indices<int32_t>(columns);
    set_loops(loop, seg_loop, pairs);
    if (rows) check_rows(*rows, states);
    else STD_TORCH_CHECK(graph.nodes <= states, "structure: ", graph.nodes, " rows, but states of ", states);
  }
  PassRows(const PassRows&) = delete;  // the loops point to its own pairs

  Tensor check_state(const Tensor& state, const Tensor& like, int64_t rank, const char* name) const {
    STD_TORCH_CHECK(is_near(state) && state.scalar_type() == like.scalar_type() && state.dim() == 3 &&
                        state.is_contiguous() && state.size(1) == rank && state.size(2) == features,
                    name, " must be a contiguous state of rank ", rank, " with the type and features of the others");
    return state;
  }

  // Link l, whose far state is still to be given.
  Link link(size_t l) const {
    const int64_t p = w_[l].size(1), q = w_[l].size(2);
    Link link{};
    link.w = w_[l].const_data_ptr();
    link.rank = from_tail_ ? q : p;
    link.step = p * q;
    link.near = from_tail_ ? q : 1;
    link.far = from_tail_ ? 1 : q;
    return link;
  }

  const Real real;
  const int64_t rank, features;  // of the near state
  Segments graph;
  Loops loops{};
  RowMap row = nullptr;  // of all states, from rows of the pass

 private:
  Tensor check_weights(const Tensor& w) const {
    STD_TORCH_CHECK(is_near(w) && w.scalar_type() == sums && w.dim() == 3 && w.is_contiguous() &&
                        w.size(0) == relations && w.size(from_tail_ ? 1 : 2) == rank,
                    "w must hold contiguous (C, d_j, d_k) in the type of the sums, with the rank of the near state");
    return w;
  }

  Segments rows_of(const Tensors& parts, const char* name, const MaybeTensor& seg_val, const MaybeTensor& edge_val) {
    STD_TORCH_CHECK(!parts.empty() && parts[0].dim() == 1 && parts[0].numel() >= 1, name, " must hold row_ptr");
    nodes = parts[0].numel() - 1;
    return check_structure(parts, name, seg_val, edge_val);
  }

  void set_loops(const MaybeTensor& loop, const MaybeTensor& seg_loop, const Tensors& pairs) {
    loops.loop = check_values(loop, "loop", relations);
    STD_TORCH_CHECK(loops.loop || !seg_loop, "seg_loop needs loop");
    loops.pairs = &pairs_;
    if (!seg_loop) {
      if (loop && all_zero(*loop)) loops.loop = nullptr;
      return;
    }
    STD_TORCH_CHECK(pairs.size() == 2, "pairs must hold row_ptr and seg_rel");
    const ScalarType index = graph.wide ? ScalarType::Long : ScalarType::Int;
    check_vector(pairs[0], "pairs", index, graph.nodes + 1);
    check_vector(pairs[1], "pairs", ScalarType::Int, pairs[1].numel());
    pairs_.wide = graph.wide, pairs_.nodes = graph.nodes, pairs_.relations = relations;
    pairs_.segments = pairs[1].numel();
    pairs_.row_ptr = pairs[0].const_data_ptr(), pairs_.seg_rel = pairs[1].const_data_ptr<int32_t>();
    graph.wide ? check_pairs<int64_t>(pairs_, "pairs") : check_pairs<int32_t>(pairs_, "pairs");
    loops.seg_loop = check_values(seg_loop, "seg_loop", pairs_.segments);
  }

  // As Kernels::check, but with columns of another number than rows.
  template <class I> void check_indices(int64_t columns) const {
    check_pairs<I>(graph, "structure");
    const I *const seg_ptr = static_cast<const I*>(graph.seg_ptr), *const col = static_cast<const I*>(graph.col);
    STD_TORCH_CHECK(rises(seg_ptr, graph.segments, graph.edges), "structure: seg_ptr must rise to the number of edges");
    STD_TORCH_CHECK(std::all_of(col, col + graph.edges, [=](I c) { return 0 <= c && c < columns; }),
                    "structure: col must lie in [0, ", columns, ")");
  }

  template <class I> void check_pairs(const Segments& g, const char* name) const {
    STD_TORCH_CHECK(rises(static_cast<const I*>(g.row_ptr), g.nodes, g.segments), name,
                    ": row_ptr must rise from 0 to the number of segments");
    const int32_t limit = int32_t(relations);
    STD_TORCH_CHECK(std::all_of(g.seg_rel, g.seg_rel + g.segments, [=](int32_t r) { return 0 <= r && r < limit; }),
                    name, ": seg_rel must lie in [0, number of relations)");
  }

  template <class I> static bool rises(const I* pointer, int64_t count, int64_t total) {
    return pointer[0] == 0 && pointer[count] == total && std::is_sorted(pointer, pointer + count + 1);
  }

  void check_rows(const Tensor& rows, int64_t states) {
    check_vector(rows, "rows", graph.wide ? ScalarType::Long : ScalarType::Int, graph.nodes);
    const auto within = [&](const auto* r) {
      return std::all_of(r, r + graph.nodes, [&](int64_t n) { return -1 <= n && n < states; });
    };
    STD_TORCH_CHECK(graph.wide ? within(rows.const_data_ptr<int64_t>()) : within(rows.const_data_ptr<int32_t>()),
                    "rows must lie in [-1, ", states, ")");
    row = rows.const_data_ptr();
  }

  const bool from_tail_;
  Tensors w_;
  Segments pairs_{};
};

// The fewest rows that some states have; those without numbers do not count.
int64_t fewest_rows(const Tensor& first, const Tensors& others) {
  int64_t rows = first.size(0);
  for (const Tensor& state : others)
    if (state.numel()) rows = std::min(rows, state.size(0));
  return rows;
}

void check_is_state(const Tensor& x, const char* name) {
  STD_TORCH_CHECK(x.is_cpu() && x.dim() == 3 && x.is_contiguous(), name, " must be a contiguous state on the CPU");
}

void gather_mix(const Tensor& x, const Tensors& w, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
                const MaybeTensor& loop, const MaybeTensor& seg_loop, const Tensors& structure, const Tensors& pairs,
                const MaybeTensor& rows, const Tensors& out, const Ints& accumulate, const Tensors& other,
                const Tensors& dw, bool from_tail) {
  check_is_state(x, "x");
  STD_TORCH_CHECK(out.size() == w.size() && accumulate.size() == w.size() && other.size() == dw.size() &&
                      (dw.empty() || dw.size() == w.size()),
                  "expected one w, out and accumulate for each link, and one other and dw, or none");
  const int64_t states = std::min(fewest_rows(x, out), fewest_rows(x, other));
  const PassRows pass(x, w, edge_val, seg_val, loop, seg_loop, structure, pairs, rows, states, x.size(0), from_tail);
  std::vector<Link> links;
  for (size_t l = 0; l < w.size(); ++l) {
    Link& link = links.emplace_back(pass.link(l));
    link.row = pass.row;
    if (out[l].numel()) link.out = pass.check_state(out[l], x, link.rank, "out").mutable_data_ptr();
    link.accumulate = accumulate[l] != 0;
    if (dw.empty()) continue;
    STD_TORCH_CHECK(dw[l].scalar_type() == w[l].scalar_type() && dw[l].numel() == w[l].numel() &&
                        dw[l].is_contiguous() && dw[l].is_cpu(),
                    "dw must be contiguous, with the type and size of w");
    link.other = pass.check_state(other[l], x, link.rank, "other").const_data_ptr();
    link.dw = dw[l].mutable_data_ptr();
  }
  kernels().gather_mix(pass.real, {pass.graph, pass.loops, x.const_data_ptr(), pass.rank, pass.features, links.data(),
                                   int64_t(links.size()), torch_team, pass.row});
}

void mix_gather(const Tensor& y, bool accumulate, const Tensors& w, const MaybeTensor& edge_val,
                const MaybeTensor& seg_val, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                const Tensors& structure, const Tensors& pairs, const MaybeTensor& rows, const Tensors& other,
                bool from_tail) {
  check_is_state(y, "y");
  STD_TORCH_CHECK(other.size() == w.size(), "expected one w and one other for each link");
  for (const Tensor& x : other) check_is_state(x, "other");
  const int64_t columns = other.empty() ? 0 : fewest_rows(other[0], other);
  const PassRows pass(y, w, edge_val, seg_val, loop, seg_loop, structure, pairs, rows, y.size(0), columns, from_tail);
  STD_TORCH_CHECK(pass.graph.nodes == columns, "structure: ", pass.graph.nodes, " rows, but states of ", columns);
  std::vector<Link> links;
  for (size_t l = 0; l < w.size(); ++l) {
    Link& link = links.emplace_back(pass.link(l));
    link.other = pass.check_state(other[l], y, link.rank, "other").const_data_ptr();
  }
  const RelationOrder segments(pass.graph);
  const auto workspace = [&](int64_t rank) { return new_state(w[0], columns, rank, pass.features); };
  const Tensor mixed = workspace(pass.rank), sums = workspace(y.element_size() < w[0].element_size() ? pass.rank : 0);
  kernels().mix_gather(pass.real,
                       {pass.graph, pass.loops, segments.rel_ptr.data(), segments.order.data(), segments.row.data(),
                        y.mutable_data_ptr(), accumulate, pass.rank, pass.features, links.data(), int64_t(links.size()),
                        mixed.mutable_data_ptr(), sums.mutable_data_ptr(), torch_team, pass.row});
}

// What `edges` relations that a flag marks have in all.
GraphSize size_of(const Flags& used, const Tensor& edges, int64_t nodes) {
  GraphSize size{nodes, 0, 0};
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i]) ++size.relations, size.edges += edges.const_data_ptr<int64_t>()[i];
  return size;
}

Ints plan_passes(const Tensor& edges, int64_t nodes, const Ints& ranks, const Ints& tails, const Ints& heads,
                 const MaybeInts& flags, bool backward) {
  const Dag dag(ranks, tails, heads);
  Checks checks(edges, [](const Tensor& t) { return t.is_cpu(); });
  checks.check_vector(edges, "edges", ScalarType::Long, edges.numel());
  const int64_t relations = edges.numel();
  const Ints chosen = flags ? check_choices(*flags, dag.edges() * relations) : Ints();
  std::vector<Flags> at_tail(ranks.size(), Flags(relations)), at_head(at_tail);
  for (int64_t e = 0; e < dag.edges(); ++e)
    for (int64_t i = 0; i < relations; ++i)
      if (chosen.empty() || chosen[e * relations + i]) at_tail[tails[e]][i] = at_head[heads[e]][i] = 1;
  std::vector<GraphSize> of_tail, of_head;
  for (const Flags& used : at_tail) of_tail.push_back(size_of(used, edges, nodes));
  for (const Flags& used : at_head) of_head.push_back(size_of(used, edges, nodes));
  Ints first;
  for (const bool flag : mixed_first(of_tail, of_head, ranks, tails, heads, backward)) first.push_back(flag);
  return first;
}

Tensor empty_state(const Tensor& like, int64_t nodes, int64_t rank) {
  check_is_state(like, "like");
  STD_TORCH_CHECK(nodes >= 0 && rank >= 1, "expected a number of nodes and a rank, got ", nodes, " and ", rank);
  return new_state(like, nodes, rank, like.size(2));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(tensus_tn, CPU, m) {
  m.impl("gather_mix", TORCH_BOX(&gather_mix));
  m.impl("mix_gather", TORCH_BOX(&mix_gather));
  m.impl("plan_passes", TORCH_BOX(&plan_passes));
  m.impl("empty_state", TORCH_BOX(&empty_state));
}
