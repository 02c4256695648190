// What the operators of all devices share: their arguments, checked (see library.cpp for what they mean), and the
// gradients of the states. The kernels know none of this.
#pragma once
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "dag.h"
#include "graph.h"

namespace tensus {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Tensors = std::vector<Tensor>;
using MaybeInts = std::optional<Ints>;

// Checks of single arguments: the numbers are those of the graph, once they are known.
class Checks {
 public:
  // Tensors must lie on the device of `device`, where `on_device` says that the kernels work.
  Checks(const Tensor& device, bool (*on_device)(const Tensor&)) : device_(device), on_device_(on_device) {}

  bool is_near(const Tensor& t) const { return on_device_(t) && t.get_device_index() == device_.get_device_index(); }

  void check_vector(const Tensor& t, const char* name, ScalarType type, int64_t size) const {
    STD_TORCH_CHECK(is_near(t) && t.dim() == 1 && t.is_contiguous() && t.scalar_type() == type, name,
                    " must be a contiguous vector of the expected type on the device of h");
    STD_TORCH_CHECK(t.numel() == size, name, " must have ", size, " entries, got ", t.numel());
  }

  const void* check_values(const MaybeTensor& t, const char* name, int64_t size) const {
    if (!t) return nullptr;
    check_vector(*t, name, sums, size);
    return t->const_data_ptr();
  }

  // The parts are row_ptr, seg_rel, seg_ptr and col; in the transpose also edge_perm, which is of no interest here.
  Segments check_structure(const Tensors& parts, const char* name, const MaybeTensor& seg_val,
                           const MaybeTensor& edge_val) const {
    STD_TORCH_CHECK(parts.size() >= 4, name, " must hold row_ptr, seg_rel, seg_ptr and col");
    const Tensor &row_ptr = parts[0], &seg_rel = parts[1], &seg_ptr = parts[2], &col = parts[3];
    const ScalarType index = row_ptr.scalar_type();
    STD_TORCH_CHECK(index == ScalarType::Int || index == ScalarType::Long, name, ": indices must be int32 or int64");
    check_vector(row_ptr, "row_ptr", index, nodes + 1);
    check_vector(seg_rel, "seg_rel", ScalarType::Int, seg_rel.numel());
    check_vector(seg_ptr, "seg_ptr", index, seg_rel.numel() + 1);
    check_vector(col, "col", index, col.numel());
    return {index == ScalarType::Long,
            nodes,
            relations,
            seg_rel.numel(),
            col.numel(),
            row_ptr.const_data_ptr(),
            seg_rel.const_data_ptr<int32_t>(),
            seg_ptr.const_data_ptr(),
            col.const_data_ptr(),
            check_values(seg_val, "seg_val", seg_rel.numel()),
            check_values(edge_val, "edge_val", col.numel())};
  }

  int64_t nodes = 0, relations = 0;
  ScalarType sums = ScalarType::Float;  // the type of all values

 private:
  Tensor device_;
  bool (*on_device_)(const Tensor&);
};

// Flags that are 0 or 1; none where all of them are 1.
inline Ints check_choices(const Ints& flags, int64_t size) {
  STD_TORCH_CHECK(int64_t(flags.size()) == size, "chosen must have ", size, " entries, got ", flags.size());
  for (const int64_t flag : flags) STD_TORCH_CHECK(flag == 0 || flag == 1, "chosen must be 0 or 1, got ", flag);
  return std::find(flags.begin(), flags.end(), 0) == flags.end() ? Ints() : flags;
}

// The ends of the groups of columns; see Groups.
inline Ints group_ends(const Ints& sizes, int64_t features) {
  STD_TORCH_CHECK(!sizes.empty(), "group_sizes must name at least one group");
  Ints ends;
  for (const int64_t size : sizes) {
    const int64_t begin = ends.empty() ? 0 : ends.back();
    STD_TORCH_CHECK(0 <= size && size <= features - begin, "group_sizes must add up to ", features,
                    " columns, but there is a group of ", size, " after ", begin);
    ends.push_back(begin + size);
  }
  STD_TORCH_CHECK(ends.back() == features, "group_sizes must add up to ", features, " columns, got ", ends.back());
  return ends;
}

class Problem : public Checks {
 public:
  // `on_device` says whether a tensor lies where the kernels work, on the device of that name. Up to `maskable`
  // relations, kernels leave out what a link does not choose; else w is cleared there.
  Problem(const Tensor& h_, const Tensor& w_, const Ints& ranks, const Ints& tails, const Ints& heads,
          const MaybeInts& flags, const MaybeInts& group_sizes, bool (*on_device)(const Tensor&), const char* device,
          int64_t maskable = 0)
      : Checks(h_, on_device), dag(ranks, tails, heads) {
    STD_TORCH_CHECK(on_device(h_) && h_.dim() == 3, "h must be a ", device, " tensor of shape (N, P, F)");
    STD_TORCH_CHECK(h_.size(1) == dag.ranks[0], "h must have rank ", dag.ranks[0], ", got ", h_.size(1));
    nodes = h_.size(0), features = h_.size(2);
    h = torch::stable::contiguous(h_);
    w = torch::stable::contiguous(w_);
    sums = h.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
    check_vector(w, "w", sums, w.numel());
    if (group_sizes) ends_ = group_ends(*group_sizes, features);
    const int64_t weights = dag.weights * groups().count;
    STD_TORCH_CHECK(w.numel() % weights == 0, "w must hold a multiple of ", weights, " numbers, got ", w.numel());
    relations = w.numel() / weights;
    STD_TORCH_CHECK(relations <= INT32_MAX, "too many relations");
    if (!flags) return;
    chosen = check_choices(*flags, dag.edges() * relations);
    masked = !chosen.empty() && relations <= maskable;
    if (chosen.empty() || masked) return;
    w = torch::stable::clone(w);
    clear_unused(w);
  }
  Problem(const Problem&) = delete;  // the loops point to its own graph

  void set_graph(const Tensors& forward, const MaybeTensor& seg_val, const MaybeTensor& edge_val,
                 const MaybeTensor& loop, const MaybeTensor& seg_loop) {
    graph = check_structure(forward, "forward", seg_val, edge_val);
    loops.loop = check_values(loop, "loop", relations);
    loops.seg_loop = check_values(seg_loop, "seg_loop", graph.segments);
    loops.pairs = &graph;
    STD_TORCH_CHECK(loops.loop || !loops.seg_loop, "seg_loop needs loop");
  }

  void set_transposed(const Tensors& backward, const MaybeTensor& seg_val, const MaybeTensor& edge_val) {
    transposed = check_structure(backward, "backward", seg_val, edge_val);
    STD_TORCH_CHECK(transposed.edges == graph.edges && transposed.wide == graph.wide,
                    "forward and backward must have the same edges and index type");
  }

  // Only these rows of the states are worked on, ascending (see cpu/needed.h). States are stored without the others; h
  // is whole, but its other rows are neither read nor given a gradient but zero.
  void set_needed(const Tensors& rows) {
    STD_TORCH_CHECK(rows.size() == dag.ranks.size(), "needed must name rows of ", dag.ranks.size(), " states, got ",
                    rows.size());
    const ScalarType index = graph.wide ? ScalarType::Long : ScalarType::Int;
    for (const Tensor& r : rows) check_vector(r, "needed", index, r.numel());
    needed = rows;
  }

  // The number of rows that are stored of state k.
  int64_t rows(int64_t k) const { return k == 0 || needed.empty() ? nodes : needed[k].numel(); }

  // h and the values of the other states.
  Tensors check_states(const Tensors& states) const {
    STD_TORCH_CHECK(int64_t(states.size()) == dag.last(), "states must hold ", dag.last(), " tensors");
    Tensors all{h};
    for (int64_t k = 1; k <= dag.last(); ++k) all.push_back(check_state(states[k - 1], k, "the value"));
    return all;
  }

  Tensor check_state(const Tensor& state, int64_t k, const char* name) const {
    STD_TORCH_CHECK(is_near(state) && state.scalar_type() == h.scalar_type() && state.dim() == 3 &&
                        state.size(0) == rows(k) && state.size(1) == dag.ranks[k] && state.size(2) == features,
                    name, " of state ", k, " must have the device and type of h and the shape (", rows(k), ", ",
                    dag.ranks[k], ", ", features, ")");
    return torch::stable::contiguous(state);
  }

  Groups groups() const { return ends_.empty() ? Groups{} : Groups{int64_t(ends_.size()), ends_.data()}; }

  // Edge e seen from its tail (the far state is the head's) or from its head.
  Link link(int64_t e, bool from_tail) const {
    const int64_t p = dag.ranks[dag.tails[e]], q = dag.ranks[dag.heads[e]];
    Link l{};
    l.w = weight(w, e);
    l.rank = from_tail ? q : p;
    l.step = p * q;
    l.near = from_tail ? q : 1;
    l.far = from_tail ? 1 : q;
    l.group = relations * dag.weights;
    l.chosen = masked ? chosen.data() + e * relations : nullptr;
    return l;
  }

  // Where the weights of edge e for the first group, or their gradient, begin.
  void* weight(const Tensor& all, int64_t e) const {
    return static_cast<char*>(all.data_ptr()) + relations * dag.offset[e] * int64_t(all.element_size());
  }

  // Sets to zero, in what is laid out as w, what belongs to relations that an edge does not use.
  void clear_unused(Tensor& all) const {
    for (int64_t e = 0; !chosen.empty() && e < dag.edges(); ++e) {
      const auto begin = chosen.begin() + e * relations, end = begin + relations;
      const int64_t step = dag.ranks[dag.tails[e]] * dag.ranks[dag.heads[e]];
      for (auto first = std::find(begin, end, 0); first != end;) {
        const auto last = std::find(first, end, 1);
        for (int64_t g = 0; g < groups().count; ++g) {
          const int64_t place = relations * (g * dag.weights + dag.offset[e]) + (first - begin) * step;
          Tensor unused = torch::stable::narrow(all, 0, place, (last - first) * step);
          torch::stable::zero_(unused);
        }
        first = std::find(last, end, 0);
      }
    }
  }

  const Dag dag;
  Tensor h, w;          // w is zero where an edge does not use a relation, unless masked
  Ints chosen;          // (edges, relations): 1 where the edge uses the relation, else 0; empty: all are used
  bool masked = false;  // whether links say what they use
  int64_t features;
  Segments graph, transposed;  // transposed: only in backward
  Tensors needed;              // rows of every state; empty: all rows of all
  Loops loops;

 private:
  Ints ends_;  // of the groups of columns; empty: one group
};

// The gradients of the states: each is the one given, if any, and what its heads pass on, if they have one.
struct Gradients {
  std::vector<MaybeTensor> of;         // what is given, or where the sum goes; none where it is not wanted
  std::vector<bool> present, written;  // whether there is one at all; whether `of` holds something already

  // new_state(k) makes room for one of state k.
  template <class NewState>
  Gradients(const Problem& problem, const Tensors& grads, const Ints& nodes, bool need_h, const NewState& new_state)
      : of(problem.dag.last() + 1), present(of.size()), written(of.size()) {
    const Dag& dag = problem.dag;
    STD_TORCH_CHECK(grads.size() == nodes.size(), "grads and grad_nodes must have the same length");
    for (size_t i = 0; i < grads.size(); ++i) {
      const int64_t k = nodes[i];
      STD_TORCH_CHECK(1 <= k && k <= dag.last() && !of[k], "grad_nodes must name different states in [1, ", dag.last(),
                      "]");
      of[k] = problem.check_state(grads[i], k, "the gradient");
      written[k] = present[k] = true;
    }
    std::vector<bool> passed(of.size());
    for (int64_t k = dag.last(); k >= 0; --k)
      for (int64_t e = 0; e < dag.edges(); ++e)
        if (dag.tails[e] == k && present[dag.heads[e]]) present[k] = passed[k] = true;
    for (int64_t k = need_h ? 0 : 1; k <= dag.last(); ++k) {
      if (!passed[k]) continue;
      Tensor sum = new_state(k);
      if (of[k]) torch::stable::copy_(sum, *of[k]);
      of[k] = sum;
    }
  }

  // Link `link` adds to the gradient of state k.
  void add(Link& link, int64_t k) {
    if (!of[k]) return;
    link.out = of[k]->mutable_data_ptr();
    link.accumulate = written[k];
    written[k] = true;
  }

  Tensor of_h(const Problem& problem, bool need_h) const {
    if (of[0]) return *of[0];
    return torch::stable::new_zeros(problem.h, {need_h ? problem.nodes : 0, problem.dag.ranks[0], problem.features});
  }
};

}  // namespace tensus
