#include "select.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "arena.h"
#include "share.h"

namespace tensus {
namespace {

template <class I> const I* as(const void* indices) { return static_cast<const I*>(indices); }

// Calls with<I>() with the type of the indices.
template <class With> void indexed(bool wide, const With& with) {
  wide ? with.template operator()<int64_t>() : with.template operator()<int32_t>();
}

// ---------------------------------------------------------------------------------------------- rows of states

// The nodes of some states, ascending; none where one of them has all nodes.
template <class I> std::optional<std::vector<I>> united(const std::vector<StateRows>& states) {
  std::vector<I> all, sum;
  for (const StateRows& state : states) {
    if (state.all) return std::nullopt;
    const I* const node = as<I>(state.node);
    if (size_t(state.count) == all.size() && std::equal(all.begin(), all.end(), node)) continue;
    sum.clear();
    std::set_union(all.begin(), all.end(), node, node + state.count, std::back_inserter(sum));
    all.swap(sum);
  }
  return all;
}

// Where the nodes of a state stand, if they do. Memory that is never looked at is never touched.
template <class I> class Places {
 public:
  Places(const I* node, int64_t count, bool compact, int64_t nodes)
      : place_(static_cast<I*>(std::calloc(size_t(nodes) + 1, sizeof(I))), std::free) {
    if (!place_) throw std::bad_alloc();
    for (int64_t r = 0; r < count; ++r) place_.get()[node[r]] = I(compact ? r : node[r]) + 1;
  }

  I operator()(I node) const { return place_.get()[node] - 1; }  // -1: nowhere

 private:
  std::unique_ptr<I, void (*)(void*)> place_;
};

}  // namespace

// ---------------------------------------------------------------------------------------------- counting

std::vector<int64_t> count_edges(const Segments& whole, Team team) {
  const Chunks chunks(whole.segments);
  std::vector<int64_t> counts(chunks.count * whole.relations), total(whole.relations);
  indexed(whole.wide, [&]<class I>() {
    const I* const seg_ptr = as<I>(whole.seg_ptr);
    share(team, chunks.count, [&](int64_t chunk) {
      int64_t* const mine = &counts[chunk * whole.relations];
      for (int64_t s = chunks.first(chunk); s < chunks.first(chunk + 1); ++s)
        mine[whole.seg_rel[s]] += seg_ptr[s + 1] - seg_ptr[s];
    });
  });
  for (size_t i = 0; i < counts.size(); ++i) total[i % total.size()] += counts[i];
  return total;
}

// ---------------------------------------------------------------------------------------------- copying

template <class I> class Selection::Maker {
 public:
  Maker(Selection& to, const Segments& whole, const Flags& used, const Meeting& states, Team team)
      : to_(to), whole_(whole), used_(used), states_(states), team_(team), rows_(whole.nodes) {}

  void make(bool keep_edges) {
    find_rows();
    if (states_.mixed_first) map_states();
    find_columns();
    if (!states_.mixed_first) {
      if (some_rows()) leave_out_rows();
      map_states();
    }
    count();
    copy(keep_edges);
  }

 private:
  struct Size {
    int64_t segments = 0, edges = 0;
  };

  template <class T> T* keep(int64_t count) {
    const size_t bytes = size_t(count) * sizeof(T);
    if (bytes >= kLarge) to_.memory_.emplace_back(acquire_block(bytes), release_block);
    else to_.memory_.emplace_back(::operator new(bytes), [](void* memory) { ::operator delete(memory); });
    return static_cast<T*>(to_.memory_.back().get());
  }

  void find_rows() {
    std::vector<StateRows> all(states_.far);
    if (states_.mixed_first) all.push_back(states_.near);
    if (const auto nodes = united<I>(all)) keep_rows(*nodes);
  }

  void keep_rows(const std::vector<I>& nodes) {
    I* const node = keep<I>(nodes.size());
    std::copy(nodes.begin(), nodes.end(), node);
    rows_ = nodes.size(), node_ = node;
  }

  bool some_rows() const {
    return !states_.near.all ||
           std::any_of(states_.far.begin(), states_.far.end(), [](const StateRows& far) { return !far.all; });
  }

  // Rows without a used segment that has a column, unless the near state is joined to them by a loop.
  void leave_out_rows() {
    std::vector<char> stays(rows_);
    const Chunks chunks(rows_);
    share(team_, chunks.count, [&](int64_t chunk) {
      for (int64_t n = chunks.first(chunk); n < chunks.first(chunk + 1); ++n) {
        stays[n] = states_.loops && (!places_ || (*places_)(node(n)) >= 0);
        each_segment(n, [&](int64_t s) { stays[n] = stays[n] || has_column(s); });
      }
    });
    std::vector<I> nodes;
    for (int64_t n = 0; n < rows_; ++n)
      if (stays[n]) nodes.push_back(node(n));
    if (int64_t(nodes.size()) < rows_) keep_rows(nodes);
  }

  void map_states() {
    to_.graph_.nodes = rows_, to_.graph_.node = node_;
    to_.near_row_ = map(states_.near);
    for (const StateRows& far : states_.far) to_.far_row_.push_back(map(far));
  }

  I node(int64_t row) const { return node_ ? node_[row] : I(row); }

  // The nodes of the pass and of the state both ascend, so one walk along them is enough.
  RowMap map(const StateRows& state) {
    if (state.all) return node_;
    const I* const nodes = as<I>(state.node);
    if (state.compact && state.count == rows_ && (!node_ || std::equal(nodes, nodes + rows_, node_))) return nullptr;
    I* const row = keep<I>(rows_);
    for (int64_t n = 0, r = 0; n < rows_; ++n) {
      while (r < state.count && nodes[r] < node(n)) ++r;
      const bool here = r < state.count && nodes[r] == node(n);
      row[n] = here ? I(state.compact ? r : nodes[r]) : I(-1);
    }
    return row;
  }

  void find_columns() {
    if (states_.mixed_first) {
      if (node_) places_.emplace(node_, rows_, true, whole_.nodes);
    } else if (!states_.near.all) {
      places_.emplace(as<I>(states_.near.node), states_.near.count, states_.near.compact, whole_.nodes);
    }
  }

  // visit(s) for the segments of a row that are used.
  template <class Visit> void each_segment(int64_t row, const Visit& visit) const {
    if (states_.mixed_first && to_.near_row_ && as<I>(to_.near_row_)[row] < 0) return;
    const I* const row_ptr = as<I>(whole_.row_ptr);
    for (int64_t s = row_ptr[node(row)]; s < row_ptr[node(row) + 1]; ++s)
      if (used_[whole_.seg_rel[s]]) visit(s);
  }

  int64_t count_columns(int64_t s) const {
    const I *seg_ptr = as<I>(whole_.seg_ptr), *col = as<I>(whole_.col);
    if (!places_) return seg_ptr[s + 1] - seg_ptr[s];
    int64_t count = 0;
    for (int64_t e = seg_ptr[s]; e < seg_ptr[s + 1]; ++e) count += (*places_)(col[e]) >= 0;
    return count;
  }

  bool has_column(int64_t s) const {
    const I *seg_ptr = as<I>(whole_.seg_ptr), *col = as<I>(whole_.col);
    return std::any_of(col + seg_ptr[s], col + seg_ptr[s + 1], [&](I c) { return !places_ || (*places_)(c) >= 0; });
  }

  void count() {
    const Chunks chunks(rows_);
    start_.resize(chunks.count + 1);
    share(team_, chunks.count, [&](int64_t chunk) {
      Size size;
      for (int64_t n = chunks.first(chunk); n < chunks.first(chunk + 1); ++n)
        each_segment(n, [&](int64_t s) {
          const int64_t columns = count_columns(s);
          size.segments += columns > 0, size.edges += columns;
        });
      start_[chunk + 1] = size;
    });
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
      start_[chunk + 1].segments += start_[chunk].segments;
      start_[chunk + 1].edges += start_[chunk].edges;
    }
    to_.graph_.segments = start_.back().segments, to_.graph_.edges = start_.back().edges;
  }

  void copy(bool keep_edges) {
    Segments& graph = to_.graph_;
    I *const row_ptr = keep<I>(rows_ + 1), *const seg_ptr = keep<I>(graph.segments + 1),
             *const col = keep<I>(graph.edges);
    int32_t* const seg_rel = keep<int32_t>(graph.segments);
    I *const segment = whole_.seg_val ? keep<I>(graph.segments) : nullptr, *const edge = keep_edges || whole_.edge_val
                                                                                             ? keep<I>(graph.edges)
                                                                                             : nullptr;
    const I *const old_ptr = as<I>(whole_.seg_ptr), *const old_col = as<I>(whole_.col);
    const Chunks chunks(rows_);
    share(team_, chunks.count, [&](int64_t chunk) {
      Size at = start_[chunk];
      for (int64_t n = chunks.first(chunk); n < chunks.first(chunk + 1); ++n) {
        row_ptr[n] = I(at.segments);
        each_segment(n, [&](int64_t s) {
          const int64_t begin = at.edges;
          for (int64_t e = old_ptr[s]; e < old_ptr[s + 1]; ++e) {
            const I place = places_ ? (*places_)(old_col[e]) : old_col[e];
            if (place < 0) continue;
            if (edge) edge[at.edges] = I(e);
            col[at.edges++] = place;
          }
          if (at.edges == begin) return;
          if (segment) segment[at.segments] = I(s);
          seg_rel[at.segments] = whole_.seg_rel[s];
          seg_ptr[at.segments++] = I(begin);
        });
      }
    });
    row_ptr[rows_] = I(graph.segments), seg_ptr[graph.segments] = I(graph.edges);
    graph.row_ptr = row_ptr, graph.seg_rel = seg_rel, graph.seg_ptr = seg_ptr, graph.col = col;
    graph.seg_val = graph.edge_val = nullptr;
    to_.edge_ = edge, to_.segment_ = segment;
  }

  Selection& to_;
  const Segments& whole_;
  const Flags& used_;
  const Meeting& states_;
  const Team team_;
  int64_t rows_;
  const I* node_ = nullptr;
  std::optional<Places<I>> places_;  // of columns; none where these keep their numbers
  std::vector<Size> start_;          // of each chunk of rows, in the copy
};

Selection::Selection(const Segments& whole, const Flags& used, const Meeting& states, bool keep_edges, Team team)
    : graph_(whole) {
  indexed(whole.wide, [&]<class I>() { Maker<I>(*this, whole, used, states, team).make(keep_edges); });
}

// ---------------------------------------------------------------------------------------------- values

namespace {

// visit<A>(f, numbers[f]) for every f, with the type A of the values.
template <class Visit>
void each_value(bool wide, size_t value_bytes, const void* numbers, int64_t count, Team team, const Visit& visit) {
  const Chunks chunks(count);
  indexed(wide, [&]<class I>() {
    share(team, chunks.count, [&](int64_t chunk) {
      for (int64_t f = chunks.first(chunk); f < chunks.first(chunk + 1); ++f) {
        if (value_bytes == sizeof(double)) visit.template operator()<double>(f, as<I>(numbers)[f]);
        else visit.template operator()<float>(f, as<I>(numbers)[f]);
      }
    });
  });
}

}  // namespace

void Selection::copy_edges(const void* whole, void* to, size_t value_bytes, Team team) const {
  each_value(graph_.wide, value_bytes, edge_, graph_.edges, team,
             [&]<class A>(int64_t f, int64_t e) { static_cast<A*>(to)[f] = static_cast<const A*>(whole)[e]; });
}

void Selection::copy_segments(const void* whole, void* to, size_t value_bytes, Team team) const {
  each_value(graph_.wide, value_bytes, segment_, graph_.segments, team,
             [&]<class A>(int64_t f, int64_t s) { static_cast<A*>(to)[f] = static_cast<const A*>(whole)[s]; });
}

void Selection::add_edges(const void* part, void* whole, size_t value_bytes, Team team) const {
  each_value(graph_.wide, value_bytes, edge_, graph_.edges, team,
             [&]<class A>(int64_t f, int64_t e) { static_cast<A*>(whole)[e] += static_cast<const A*>(part)[f]; });
}

}  // namespace tensus
