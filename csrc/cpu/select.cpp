#include "select.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "arena.h"

namespace tensus {
namespace {

constexpr int64_t kMaxChunks = 256;
constexpr int64_t kChunkRows = 1024;  // at least

// body(i) for i = 0 .. count - 1, each on whichever thread is free.
template <class Body> void share(Team team, int64_t count, const Body& body) {
  struct Shared {
    const Body& body;
    const int64_t count;
    std::atomic<int64_t> taken{0};
  } shared{body, count};
  const Work work = [](void* context) {
    Shared& all = *static_cast<Shared*>(context);
    for (int64_t i; (i = all.taken++) < all.count;) all.body(i);
  };
  count > 1 ? team(work, &shared) : work(&shared);
}

// 0 .. size - 1 in chunks of about equal length.
struct Chunks {
  explicit Chunks(int64_t size) : size(size), count(std::min(kMaxChunks, 1 + size / kChunkRows)) {}
  int64_t first(int64_t chunk) const { return size / count * chunk + std::min(chunk, size % count); }

  int64_t size, count;
};

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
  Maker(Selection& to, const Segments& whole, const Flags& used, const Meeting& states)
      : to_(to), whole_(whole), used_(used), states_(states), rows_(whole.nodes) {}

  void make(bool keep_edges) {
    number_rows();
    find_columns();
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

  void number_rows() {
    std::vector<StateRows> all(states_.far);
    if (states_.mixed_first) all.push_back(states_.near);
    if (const auto nodes = united<I>(all)) {
      I* const node = keep<I>(nodes->size());
      std::copy(nodes->begin(), nodes->end(), node);
      rows_ = nodes->size(), node_ = node;
    }
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

  void count() {
    const Chunks chunks(rows_);
    start_.resize(chunks.count + 1);
    share(to_.team_, chunks.count, [&](int64_t chunk) {
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
    char* const seg_val = whole_.seg_val ? keep<char>(graph.segments * to_.value_bytes_) : nullptr;
    char* const edge_val = whole_.edge_val ? keep<char>(graph.edges * to_.value_bytes_) : nullptr;
    I* const edge = keep_edges ? keep<I>(graph.edges) : nullptr;
    const I *const old_ptr = as<I>(whole_.seg_ptr), *const old_col = as<I>(whole_.col);
    const auto copy_value = [&](char* to, int64_t at, const void* values, int64_t from) {
      if (to)
        std::memcpy(to + at * to_.value_bytes_, static_cast<const char*>(values) + from * to_.value_bytes_,
                    to_.value_bytes_);
    };
    const Chunks chunks(rows_);
    share(to_.team_, chunks.count, [&](int64_t chunk) {
      Size at = start_[chunk];
      for (int64_t n = chunks.first(chunk); n < chunks.first(chunk + 1); ++n) {
        row_ptr[n] = I(at.segments);
        each_segment(n, [&](int64_t s) {
          const int64_t begin = at.edges;
          for (int64_t e = old_ptr[s]; e < old_ptr[s + 1]; ++e) {
            const I place = places_ ? (*places_)(old_col[e]) : old_col[e];
            if (place < 0) continue;
            copy_value(edge_val, at.edges, whole_.edge_val, e);
            if (edge) edge[at.edges] = I(e);
            col[at.edges++] = place;
          }
          if (at.edges == begin) return;
          copy_value(seg_val, at.segments, whole_.seg_val, s);
          seg_rel[at.segments] = whole_.seg_rel[s];
          seg_ptr[at.segments++] = I(begin);
        });
      }
    });
    row_ptr[rows_] = I(graph.segments), seg_ptr[graph.segments] = I(graph.edges);
    graph.row_ptr = row_ptr, graph.seg_rel = seg_rel, graph.seg_ptr = seg_ptr, graph.col = col;
    graph.seg_val = seg_val, graph.edge_val = edge_val;
    to_.edge_ = edge;
  }

  Selection& to_;
  const Segments& whole_;
  const Flags& used_;
  const Meeting& states_;
  int64_t rows_;
  const I* node_ = nullptr;
  std::optional<Places<I>> places_;  // of columns; none where these keep their numbers
  std::vector<Size> start_;          // of each chunk of rows, in the copy
};

Selection::Selection(const Segments& whole, const Flags& used, const Meeting& states, size_t value_bytes,
                     bool keep_edges, Team team)
    : value_bytes_(value_bytes), team_(team), graph_(whole) {
  graph_.whole = &whole;
  indexed(whole.wide, [&]<class I>() { Maker<I>(*this, whole, used, states).make(keep_edges); });
}

// ---------------------------------------------------------------------------------------------- adding back

void Selection::add_back(const void* part, void* whole) const {
  const auto add = [&]<class I, class A>() {
    const Chunks chunks(graph_.edges);
    share(team_, chunks.count, [&](int64_t chunk) {
      for (int64_t f = chunks.first(chunk); f < chunks.first(chunk + 1); ++f)
        static_cast<A*>(whole)[as<I>(edge_)[f]] += static_cast<const A*>(part)[f];
    });
  };
  indexed(graph_.wide, [&]<class I>() {
    value_bytes_ == sizeof(double) ? add.template operator()<I, double>() : add.template operator()<I, float>();
  });
}

}  // namespace tensus
