// The operators that run one pass over some rows of a graph, and that select what it reads, for those who put the
// passes of a propagation together themselves: processes that exchange rows of the states in between. See library.cpp
// for what they take.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "cpu/select.h"
#include "ops_cpu.h"
#include "passes.h"

namespace {

using namespace tensus;

// Rows of a graph, with columns of another number, checked.
class RowsOfGraph : public Checks {
 public:
  RowsOfGraph(const Tensors& structure, int64_t relations_, int64_t columns, ScalarType values,
              const MaybeTensor& seg_val = {}, const MaybeTensor& edge_val = {})
      : Checks(first_of(structure), [](const Tensor& t) { return t.is_cpu(); }) {
    nodes = structure[0].numel() - 1, relations = relations_, sums = values;
    graph = check_structure(structure, "structure", seg_val, edge_val);
    check_indices(graph, "structure", columns);
  }

  ScalarType index() const { return graph.wide ? ScalarType::Long : ScalarType::Int; }

  Segments graph;

 private:
  static const Tensor& first_of(const Tensors& structure) {
    STD_TORCH_CHECK(!structure.empty() && structure[0].dim() == 1 && structure[0].numel() >= 1 && structure[0].is_cpu(),
                    "structure must hold row_ptr");
    return structure[0];
  }
};

// The rows of a graph that a pass works on, and the weights of its links, checked.
class PassRows : public RowsOfGraph {
 public:
  // The near state is x of gather_mix, which is gathered, or y of mix_gather, where `columns` states are.
  PassRows(const Tensor& near, const Tensors& weights, const MaybeTensor& edge_val, const MaybeTensor& seg_val,
           const MaybeTensor& loop, const MaybeTensor& seg_loop, const Tensors& structure, const Tensors& pairs,
           const MaybeTensor& near_rows, const Tensors& far_rows, int64_t columns, bool from_tail)
      : RowsOfGraph(structure, relations_of(weights), columns, sums_of(near), seg_val, edge_val), real(real_of(near)),
        rank(near.size(1)), features(near.size(2)), from_tail_(from_tail), far_rows_(far_rows) {
    STD_TORCH_CHECK(far_rows.empty() || far_rows.size() == weights.size(), "expected far_rows of each link, or none");
    for (const Tensor& w : weights) w_.push_back(check_weights(w));
    set_loops(loop, seg_loop, pairs);
    near_row = check_rows(near_rows, near.size(0));
  }
  PassRows(const PassRows&) = delete;  // the loops point to its own pairs

  Tensor check_state(const Tensor& state, const Tensor& like, int64_t rank, const char* name) const {
    STD_TORCH_CHECK(is_near(state) && state.scalar_type() == like.scalar_type() && state.dim() == 3 &&
                        state.is_contiguous() && state.size(1) == rank && state.size(2) == features,
                    name, " must be a contiguous state of rank ", rank, " with the type and features of the others");
    return state;
  }

  // The rows of a state that come after its own, if there are some.
  Halo halo_of(const Tensor& state, const MaybeTensor& halo, int64_t rank) const {
    if (!halo) return {};
    check_state(*halo, state, rank, "halo");
    if (!halo->numel()) return {};
    return {halo->const_data_ptr(), state.size(0)};
  }

  // Link l, whose far state, of `states` rows, is still to be given.
  Link link(size_t l, int64_t states) const {
    const int64_t p = w_[l].size(1), q = w_[l].size(2);
    Link link{};
    link.row = check_rows(far_rows_.empty() ? MaybeTensor() : MaybeTensor(far_rows_[l]), states);
    link.w = w_[l].const_data_ptr();
    link.rank = from_tail_ ? q : p;
    link.step = p * q;
    link.near = from_tail_ ? q : 1;
    link.far = from_tail_ ? 1 : q;
    return link;
  }

  const Real real;
  const int64_t rank, features;  // of the near state
  Loops loops{};
  RowMap near_row;

 private:
  Tensor check_weights(const Tensor& w) const {
    STD_TORCH_CHECK(is_near(w) && w.scalar_type() == sums && w.dim() == 3 && w.is_contiguous() &&
                        w.size(0) == relations && w.size(from_tail_ ? 1 : 2) == rank,
                    "w must hold contiguous (C, d_j, d_k) in the type of the sums, with the rank of the near state");
    return w;
  }

  static int64_t relations_of(const Tensors& weights) {
    STD_TORCH_CHECK(!weights.empty(), "a pass must serve at least one link");
    return weights[0].dim() == 3 ? weights[0].size(0) : 0;
  }

  static ScalarType sums_of(const Tensor& state) {
    return state.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
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
    check_vector(pairs[0], "pairs", index(), graph.nodes + 1);
    check_vector(pairs[1], "pairs", ScalarType::Int, pairs[1].numel());
    pairs_.wide = graph.wide, pairs_.nodes = graph.nodes, pairs_.relations = relations;
    pairs_.segments = pairs[1].numel();
    pairs_.row_ptr = pairs[0].const_data_ptr(), pairs_.seg_rel = pairs[1].const_data_ptr<int32_t>();
    check_indices(pairs_, "pairs", 0);
    loops.seg_loop = check_values(seg_loop, "seg_loop", pairs_.segments);
  }

  // The rows of a state of `states` rows that the pass meets.
  RowMap check_rows(const MaybeTensor& rows, int64_t states) const {
    if (!rows) {
      STD_TORCH_CHECK(graph.nodes <= states, "structure: ", graph.nodes, " rows, but a state of ", states);
      return nullptr;
    }
    check_vector(*rows, "rows", index(), graph.nodes);
    const auto within = [&](const auto* r) {
      return std::all_of(r, r + graph.nodes, [&](int64_t n) { return -1 <= n && n < states; });
    };
    STD_TORCH_CHECK(graph.wide ? within(rows->const_data_ptr<int64_t>()) : within(rows->const_data_ptr<int32_t>()),
                    "rows must lie in [-1, ", states, ")");
    return rows->const_data_ptr();
  }

  const bool from_tail_;
  const Tensors far_rows_;
  Tensors w_;
  Segments pairs_{};
};

void check_is_state(const Tensor& x, const char* name) {
  STD_TORCH_CHECK(x.is_cpu() && x.dim() == 3 && x.is_contiguous(), name, " must be a contiguous state on the CPU");
}

void gather_mix(const Tensor& x, const MaybeTensor& halo, const Tensors& w, const MaybeTensor& edge_val,
                const MaybeTensor& seg_val, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                const Tensors& structure, const Tensors& pairs, const MaybeTensor& near_rows, const Tensors& far_rows,
                const Tensors& out, const Ints& accumulate, const Tensors& other, const Tensors& dw, bool from_tail) {
  check_is_state(x, "x");
  STD_TORCH_CHECK(out.size() == w.size() && accumulate.size() == w.size() && other.size() == dw.size() &&
                      (dw.empty() || dw.size() == w.size()),
                  "expected one w, out and accumulate for each link, and one other and dw, or none");
  const PassRows pass(x, w, edge_val, seg_val, loop, seg_loop, structure, pairs, near_rows, far_rows,
                      x.size(0) + (halo ? halo->size(0) : 0), from_tail);
  std::vector<Link> links;
  for (size_t l = 0; l < w.size(); ++l) {
    int64_t states = INT64_MAX;
    if (out[l].numel()) states = out[l].size(0);
    if (!dw.empty()) states = std::min(states, other[l].size(0));
    Link& link = links.emplace_back(pass.link(l, states));
    if (out[l].numel()) link.out = pass.check_state(out[l], x, link.rank, "out").mutable_data_ptr();
    link.accumulate = accumulate[l] != 0;
    if (dw.empty()) continue;
    STD_TORCH_CHECK(dw[l].scalar_type() == w[l].scalar_type() && dw[l].numel() == w[l].numel() &&
                        dw[l].is_contiguous() && dw[l].is_cpu(),
                    "dw must be contiguous, with the type and size of w");
    link.other = pass.check_state(other[l], x, link.rank, "other").const_data_ptr();
    link.dw = dw[l].mutable_data_ptr();
  }
  kernels().gather_mix(pass.real, {pass.graph,
                                   pass.loops,
                                   x.const_data_ptr(),
                                   pass.rank,
                                   pass.features,
                                   links.data(),
                                   int64_t(links.size()),
                                   torch_team,
                                   pass.near_row,
                                   {},
                                   pass.halo_of(x, halo, pass.rank)});
}

void mix_gather(const Tensor& y, bool accumulate, const Tensors& w, const MaybeTensor& edge_val,
                const MaybeTensor& seg_val, const MaybeTensor& loop, const MaybeTensor& seg_loop,
                const Tensors& structure, const Tensors& pairs, const MaybeTensor& near_rows, const Tensors& far_rows,
                const Tensors& other, const Tensors& halos, bool from_tail) {
  check_is_state(y, "y");
  STD_TORCH_CHECK(other.size() == w.size() && (halos.empty() || halos.size() == w.size()),
                  "expected one w and one other for each link, and one of halos, or none");
  for (const Tensor& x : other) check_is_state(x, "other");
  const int64_t columns = structure.empty() ? 0 : structure[0].numel() - 1;
  const PassRows pass(y, w, edge_val, seg_val, loop, seg_loop, structure, pairs, near_rows, far_rows, columns,
                      from_tail);
  std::vector<Link> links;
  for (size_t l = 0; l < w.size(); ++l) {
    const MaybeTensor halo = halos.empty() ? MaybeTensor() : MaybeTensor(halos[l]);
    Link& link = links.emplace_back(pass.link(l, other[l].size(0) + (halo ? halo->size(0) : 0)));
    link.other = pass.check_state(other[l], y, link.rank, "other").const_data_ptr();
    link.halo = pass.halo_of(other[l], halo, link.rank);
  }
  const int64_t at_once = mixed_at_once(links, pass.rank, pass.relations);
  const auto workspace = [&](int64_t rank) { return new_state(w[0], columns, rank, pass.features); };
  const Tensor mixed = workspace(at_once * pass.rank),
               sums = workspace(y.element_size() < w[0].element_size() ? pass.rank : 0);
  kernels().mix_gather(pass.real, {pass.graph, pass.loops, y.mutable_data_ptr(), accumulate, pass.rank, pass.features,
                                   links.data(), int64_t(links.size()), at_once, mixed.mutable_data_ptr(),
                                   sums.mutable_data_ptr(), torch_team, pass.near_row});
}

// ---------------------------------------------------------------------------------------------- some rows, some edges

template <class I> void mark(const Segments& g, const bool* rows, const bool* used, bool* columns) {
  const I *const row_ptr = static_cast<const I*>(g.row_ptr), *const seg_ptr = static_cast<const I*>(g.seg_ptr),
                 *const col = static_cast<const I*>(g.col);
  for (int64_t n = 0; n < g.nodes; ++n)
    for (I s = row_ptr[n]; rows[n] && s < row_ptr[n + 1]; ++s)
      for (I e = seg_ptr[s]; used[g.seg_rel[s]] && e < seg_ptr[s + 1]; ++e) columns[col[e]] = true;
}

const bool* flags_of(const Tensor& flags) { return static_cast<const bool*>(flags.const_data_ptr()); }

Tensor mark_columns(const Tensors& structure, const Tensor& rows, const Tensor& used, int64_t columns) {
  const RowsOfGraph whole(structure, used.numel(), columns, ScalarType::Float);
  whole.check_vector(rows, "rows", ScalarType::Bool, whole.nodes);
  whole.check_vector(used, "used", ScalarType::Bool, used.numel());
  const Tensor marks = torch::stable::new_zeros(rows, {columns});
  bool* const marked = static_cast<bool*>(marks.mutable_data_ptr());
  whole.graph.wide ? mark<int64_t>(whole.graph, flags_of(rows), flags_of(used), marked)
                   : mark<int32_t>(whole.graph, flags_of(rows), flags_of(used), marked);
  return marks;
}

// Some rows of a structure, and of their edges those in relations that are used, from columns that have a number.
template <class I> struct Selected {
  std::vector<I> row_ptr{0}, seg_ptr{0}, col, segment, edge;
  std::vector<int32_t> seg_rel;

  Selected(const Segments& g, const int64_t* rows, int64_t count, const bool* used, const I* column) {
    const I *const begin_row = static_cast<const I*>(g.row_ptr), *const begin = static_cast<const I*>(g.seg_ptr),
                   *const from = static_cast<const I*>(g.col);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t n = rows[r];
      for (I s = n < 0 ? 0 : begin_row[n]; n >= 0 && s < begin_row[n + 1]; ++s) {
        for (I e = begin[s]; used[g.seg_rel[s]] && e < begin[s + 1]; ++e) {
          const I c = column[from[e]];
          if (c < 0) continue;
          col.push_back(c);
          edge.push_back(e);
        }
        if (I(col.size()) == seg_ptr.back()) continue;
        seg_rel.push_back(g.seg_rel[s]);
        seg_ptr.push_back(I(col.size()));
        segment.push_back(s);
      }
      row_ptr.push_back(I(seg_rel.size()));
    }
  }
};

template <class T> Tensor as_tensor(const std::vector<T>& list, const Tensor& like) {
  const ScalarType type = sizeof(T) == sizeof(int64_t) ? ScalarType::Long : ScalarType::Int;
  const Tensor tensor = torch::stable::new_empty(like, {int64_t(list.size())}, type);
  std::copy(list.begin(), list.end(), static_cast<T*>(tensor.mutable_data_ptr()));
  return tensor;
}

template <class I>
Tensors select(const Segments& g, const Tensor& rows, const Tensor& used, const Tensor& column) {
  const Selected<I> some(g, rows.const_data_ptr<int64_t>(), rows.numel(), flags_of(used), column.const_data_ptr<I>());
  Tensors parts{as_tensor(some.row_ptr, rows), as_tensor(some.seg_rel, rows)};
  for (const auto* list : {&some.seg_ptr, &some.col, &some.segment, &some.edge})
    parts.push_back(as_tensor(*list, rows));
  return parts;
}

Tensors select_rows(const Tensors& structure, const Tensor& rows, const Tensor& used, const Tensor& column) {
  const RowsOfGraph whole(structure, used.numel(), column.numel(), ScalarType::Float);
  whole.check_vector(rows, "rows", ScalarType::Long, rows.numel());
  whole.check_vector(used, "used", ScalarType::Bool, used.numel());
  whole.check_vector(column, "column", whole.index(), column.numel());
  const int64_t* const row = rows.const_data_ptr<int64_t>();
  STD_TORCH_CHECK(std::all_of(row, row + rows.numel(), [&](int64_t n) { return -1 <= n && n < whole.nodes; }),
                  "rows must lie in [-1, ", whole.nodes, ")");
  return whole.graph.wide ? select<int64_t>(whole.graph, rows, used, column)
                          : select<int32_t>(whole.graph, rows, used, column);
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
  m.impl("mark_columns", TORCH_BOX(&mark_columns));
  m.impl("select_rows", TORCH_BOX(&select_rows));
  m.impl("plan_passes", TORCH_BOX(&plan_passes));
  m.impl("empty_state", TORCH_BOX(&empty_state));
}
