#include "select.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "arena.h"

namespace tensus {
namespace {

constexpr int64_t kMaxChunks = 256;
constexpr int64_t kChunkSegments = 4096;  // at least, roughly
constexpr size_t kLine = 64;

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

template <class I> const I* as(const void* indices) { return static_cast<const I*>(indices); }

// Calls with<I>() with the type of the indices.
template <class With> void indexed(const Segments& g, const With& with) {
  g.wide ? with.template operator()<int64_t>() : with.template operator()<int32_t>();
}

std::unique_ptr<char, void (*)(void*)> allocate(size_t bytes) {
  if (bytes >= kLarge) return {static_cast<char*>(acquire_block(bytes)), release_block};
  return {static_cast<char*>(::operator new(bytes)), [](void* memory) { ::operator delete(memory); }};
}

}  // namespace

// ---------------------------------------------------------------------------------------------- counting

// There are never more counts than segments, nor, for a small structure, than relations.
Counted::Counted(const Segments& whole, Team team)
    : whole_(whole), team_(team),
      chunks_(std::min(kMaxChunks, 1 + whole.segments / (kChunkSegments + whole.relations))),
      sizes_(chunks_ * whole.relations), edges_(whole.relations) {
  indexed(whole, [&]<class I>() {
    const I *row_ptr = as<I>(whole.row_ptr), *seg_ptr = as<I>(whole.seg_ptr);
    share(team, chunks_, [&](int64_t chunk) {
      Size* const sizes = &sizes_[chunk * whole_.relations];
      const int64_t end = row_ptr[first_row(chunk + 1)];
      for (int64_t s = row_ptr[first_row(chunk)]; s < end; ++s)
        sizes[whole_.seg_rel[s]] += {1, int64_t(seg_ptr[s + 1] - seg_ptr[s])};
    });
  });
  for (int64_t chunk = 0; chunk < chunks_; ++chunk)
    for (int64_t i = 0; i < whole.relations; ++i) edges_[i] += at(chunk, i).edges;
}

int64_t Counted::first_row(int64_t chunk) const {
  return whole_.nodes / chunks_ * chunk + std::min(chunk, whole_.nodes % chunks_);
}

// ---------------------------------------------------------------------------------------------- copying

Selection::Selection(const Counted& from, const Flags& used, size_t value_bytes)
    : from_(from), used_(used), value_bytes_(value_bytes), memory_(nullptr, nullptr), graph_(from.whole_) {
  Size sum;
  for (int64_t chunk = 0; chunk < from.chunks_; ++chunk) {
    start_.push_back(sum);
    for (int64_t i = 0; i < graph_.relations; ++i)
      if (used[i]) sum += from.at(chunk, i);
  }
  graph_.segments = sum.segments, graph_.edges = sum.edges;
  indexed(graph_, [&]<class I>() { copy<I>(); });
}

template <class I> void Selection::copy() {
  const Segments& whole = from_.whole_;
  size_t bytes = 0;
  const auto reserve = [&](int64_t count, size_t size) {
    const size_t offset = bytes;
    bytes += (size_t(count) * size + kLine - 1) / kLine * kLine;
    return offset;
  };
  const size_t at_rows = reserve(graph_.nodes + 1, sizeof(I)), at_segments = reserve(graph_.segments + 1, sizeof(I)),
               at_col = reserve(graph_.edges, sizeof(I)), at_rel = reserve(graph_.segments, sizeof(int32_t)),
               at_seg_val = reserve(whole.seg_val ? graph_.segments : 0, value_bytes_),
               at_edge_val = reserve(whole.edge_val ? graph_.edges : 0, value_bytes_);
  memory_ = allocate(bytes);
  char* const memory = memory_.get();
  I* const row_ptr = reinterpret_cast<I*>(memory + at_rows);
  I* const seg_ptr = reinterpret_cast<I*>(memory + at_segments);
  I* const col = reinterpret_cast<I*>(memory + at_col);
  int32_t* const seg_rel = reinterpret_cast<int32_t*>(memory + at_rel);
  char* const seg_val = whole.seg_val ? memory + at_seg_val : nullptr;
  char* const edge_val = whole.edge_val ? memory + at_edge_val : nullptr;
  const auto copy_values = [&](char* to, int64_t at, const void* values, int64_t first, int64_t count) {
    if (!to) return;
    std::memcpy(to + at * value_bytes_, static_cast<const char*>(values) + first * value_bytes_, count * value_bytes_);
  };
  const auto is_used = [&](int64_t s) { return used_[whole.seg_rel[s]]; };

  share(from_.team_, from_.chunks_, [&](int64_t chunk) {
    const I *old_rows = as<I>(whole.row_ptr), *old_segments = as<I>(whole.seg_ptr);
    const int64_t first_row = from_.first_row(chunk), end_row = from_.first_row(chunk + 1);
    const int64_t begin = old_rows[first_row], end = old_rows[end_row];
    Size at = start_[chunk];
    std::vector<I> place(end - begin + 1, I(at.segments));  // of a segment in the copy, or of the next one there
    for (int64_t s = begin; s < end; ++s) place[s + 1 - begin] = I(place[s - begin] + is_used(s));
    for (int64_t n = first_row; n < end_row; ++n) row_ptr[n] = place[old_rows[n] - begin];
    // Run by run of segments that are used.
    for (int64_t s = begin, next; s < end; s = next) {
      next = s + 1;
      if (!is_used(s)) continue;
      while (next < end && is_used(next)) ++next;
      const int64_t first = old_segments[s], edges = old_segments[next] - first;
      for (int64_t k = s; k < next; ++k) {
        seg_rel[at.segments + k - s] = whole.seg_rel[k];
        seg_ptr[at.segments + k - s] = I(old_segments[k] - first + at.edges);
      }
      std::copy_n(as<I>(whole.col) + first, edges, col + at.edges);
      copy_values(seg_val, at.segments, whole.seg_val, s, next - s);
      copy_values(edge_val, at.edges, whole.edge_val, first, edges);
      at += {next - s, edges};
    }
  });
  row_ptr[graph_.nodes] = I(graph_.segments);
  seg_ptr[graph_.segments] = I(graph_.edges);
  graph_.row_ptr = row_ptr, graph_.seg_rel = seg_rel, graph_.seg_ptr = seg_ptr, graph_.col = col;
  graph_.seg_val = seg_val, graph_.edge_val = edge_val;
}

// ---------------------------------------------------------------------------------------------- adding back

template <class I, class A> void Selection::add_back_typed(const A* part, A* whole) const {
  const I *row_ptr = as<I>(from_.whole_.row_ptr), *seg_ptr = as<I>(from_.whole_.seg_ptr);
  share(from_.team_, from_.chunks_, [&](int64_t chunk) {
    int64_t at = start_[chunk].edges;
    const int64_t end = row_ptr[from_.first_row(chunk + 1)];
    for (int64_t s = row_ptr[from_.first_row(chunk)]; s < end; ++s)
      if (used_[from_.whole_.seg_rel[s]])
        for (int64_t e = seg_ptr[s]; e < seg_ptr[s + 1]; ++e) whole[e] += part[at++];
  });
}

void Selection::add_back(const void* part, void* whole) const {
  indexed(graph_, [&]<class I>() {
    if (value_bytes_ == sizeof(double))
      add_back_typed<I>(static_cast<const double*>(part), static_cast<double*>(whole));
    else add_back_typed<I>(static_cast<const float*>(part), static_cast<float*>(whole));
  });
}

}  // namespace tensus
