#include "sample.h"

#include <algorithm>
#include <numeric>

namespace tensus {
namespace {

// SplitMix64: a stream of random bits for each state to begin with.
uint64_t next_bits(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// A number below n, of the high bits of a product: the bias is n / 2^64.
int64_t below(uint64_t& state, int64_t n) {
  return int64_t((static_cast<unsigned __int128>(next_bits(state)) * uint64_t(n)) >> 64);
}

// `count` different numbers below n, ascending, each set of them equally likely (Floyd's algorithm).
void draw(uint64_t state, int64_t n, int64_t count, std::vector<int64_t>& drawn) {
  drawn.clear();
  for (int64_t last = n - count; last < n; ++last) {
    const int64_t k = below(state, last + 1);
    const auto place = std::lower_bound(drawn.begin(), drawn.end(), k);
    if (place != drawn.end() && *place == k) drawn.push_back(last);
    else drawn.insert(place, k);
  }
}

// Numbers nodes in the order in which they are found: a hash table with open addresses.
class Finder {
 public:
  explicit Finder(int64_t expected) {
    while (int64_t(slots_.size()) < 4 * expected) slots_.resize(slots_.empty() ? 64 : 2 * slots_.size(), kFree);
  }

  int32_t number(int32_t node) {
    if (2 * found_.size() >= slots_.size()) grow();
    Slot& slot = find(node);
    if (slot.number < 0) {
      slot = {node, int32_t(found_.size())};
      found_.push_back(node);
    }
    return slot.number;
  }

  const std::vector<int32_t>& found() const { return found_; }

 private:
  struct Slot {
    int32_t node, number;
  };
  static constexpr Slot kFree{0, -1};

  Slot& find(int32_t node) {
    const size_t mask = slots_.size() - 1;
    size_t at = (uint64_t(uint32_t(node)) * 0x9e3779b97f4a7c15 >> 32) & mask;
    while (slots_[at].number >= 0 && slots_[at].node != node) at = (at + 1) & mask;
    return slots_[at];
  }

  void grow() {
    slots_.assign(std::max<size_t>(64, 2 * slots_.size()), kFree);
    for (size_t k = 0; k < found_.size(); ++k) find(found_[k]) = {found_[k], int32_t(k)};
  }

  std::vector<Slot> slots_;
  std::vector<int32_t> found_;
};

// The numbers of the keys in ascending order of the keys, which are below 2^31: a radix sort.
std::vector<int32_t> sorted_order(const std::vector<int32_t>& keys) {
  std::vector<int32_t> order(keys.size()), from(keys.size());
  std::iota(order.begin(), order.end(), 0);
  const uint32_t largest = keys.empty() ? 0 : uint32_t(*std::max_element(keys.begin(), keys.end()));
  constexpr int kBits = 11;
  for (int shift = 0; shift < 32 && (largest >> shift) != 0; shift += kBits) {
    const auto digit = [&](int32_t k) { return (uint32_t(keys[k]) >> shift) & ((1u << kBits) - 1); };
    std::vector<int64_t> start((1u << kBits) + 1);
    for (const int32_t k : order) ++start[digit(k) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    from.swap(order);
    for (const int32_t k : from) order[start[digit(k)]++] = k;
  }
  return order;
}

// What was drawn, in the order in which nodes were found.
template <class I> class Drawn {
 public:
  explicit Drawn(const Sampling& s) : s_(s), finder_(s.count) {}

  const char* walk() {
    for (int64_t k = 0; k < s_.count; ++k) {
      if (s_.seeds[k] < 0 || s_.seeds[k] >= s_.whole.nodes) return "seeds must be nodes of the graph";
      finder_.number(int32_t(s_.seeds[k]));
    }
    size_t begin = 0;
    for (int64_t hop = 0; hop < s_.hops; ++hop) {
      const size_t end = finder_.found().size();
      for (size_t k = begin; k < end; ++k)
        if (const char* problem = row(finder_.found()[k], s_.fan_out + hop * s_.whole.relations)) return problem;
      begin = end;
    }
    return nullptr;
  }

  // The same in the order of the nodes.
  void order(Block& block) {
    const std::vector<int32_t> order = sorted_order(finder_.found());
    const size_t nodes = order.size();
    std::vector<int32_t> rank(nodes);
    for (size_t r = 0; r < nodes; ++r) rank[order[r]] = int32_t(r);
    block.node.reserve(nodes);
    for (const int32_t k : order) block.node.push_back(finder_.found()[k]);
    for (int64_t k = 0; k < s_.count; ++k) block.seed_row.push_back(rank[finder_.number(int32_t(s_.seeds[k]))]);
    Block::Structure& to = block.forward;
    to.row_ptr.assign(1, 0), to.seg_ptr.assign(1, 0);
    to.row_ptr.reserve(nodes + 1), to.seg_ptr.reserve(segments_.size() + 1);
    to.seg_rel.reserve(segments_.size()), block.segment.reserve(segments_.size());
    to.col.reserve(col_.size()), block.edge.reserve(col_.size());
    for (const int32_t k : order) {
      const bool expanded = size_t(k) < rows_.size();
      for (size_t s = expanded ? rows_[k] : 0; s < (expanded ? row_end(k) : 0); ++s) {
        const Segment& segment = segments_[s];
        const size_t end = s + 1 < segments_.size() ? segments_[s + 1].begin : col_.size();
        for (size_t e = segment.begin; e < end; ++e) {
          to.col.push_back(rank[col_[e]]);
          block.edge.push_back(edge_[e]);
        }
        to.seg_rel.push_back(s_.whole.seg_rel[segment.whole]);
        to.seg_ptr.push_back(int32_t(to.col.size()));
        block.segment.push_back(segment.whole);
      }
      to.row_ptr.push_back(int32_t(to.seg_rel.size()));
    }
  }

  size_t edges() const { return col_.size(); }

 private:
  struct Segment {
    int64_t whole;
    size_t begin;
  };

  size_t row_end(size_t k) const { return k + 1 < rows_.size() ? rows_[k + 1] : segments_.size(); }

  const char* row(int64_t n, const int64_t* fan_out) {
    const Segments& g = s_.whole;
    const I *row_ptr = static_cast<const I*>(g.row_ptr), *seg_ptr = static_cast<const I*>(g.seg_ptr);
    rows_.push_back(segments_.size());
    const int64_t first = row_ptr[n], last = row_ptr[n + 1];
    if (first < 0 || last < first || last > g.segments) return "row_ptr must rise from 0 to the number of segments";
    for (int64_t s = first; s < last; ++s) {
      const int64_t begin = seg_ptr[s], end = seg_ptr[s + 1];
      if (begin < 0 || end < begin || end > g.edges) return "seg_ptr must rise from 0 to the number of edges";
      if (uint32_t(g.seg_rel[s]) >= uint64_t(g.relations)) return "seg_rel must lie in [0, number of relations)";
      const int64_t wanted = fan_out[g.seg_rel[s]], all = end - begin;
      if (wanted == 0 || all == 0) continue;
      segments_.push_back({s, col_.size()});
      bool in_range = true;
      if (wanted < 0 || wanted >= all) {
        for (int64_t e = begin; e < end; ++e) in_range &= add(e);
      } else {
        uint64_t state = s_.seed, mixed = next_bits(state) ^ uint64_t(s);
        draw(next_bits(mixed), all, wanted, positions_);
        for (const int64_t k : positions_) in_range &= add(begin + k);
      }
      if (!in_range) return "col must lie in [0, number of nodes)";
    }
    return nullptr;
  }

  bool add(int64_t e) {
    const I node = static_cast<const I*>(s_.whole.col)[e];
    if (node < 0 || node >= s_.whole.nodes) return false;
    col_.push_back(finder_.number(int32_t(node)));
    edge_.push_back(e);
    return true;
  }

  const Sampling& s_;
  Finder finder_;
  std::vector<size_t> rows_;  // the first segment of every row that was walked from
  std::vector<Segment> segments_;
  std::vector<int32_t> col_;
  std::vector<int64_t> edge_, positions_;
};

// The transpose: edges of one relation after the other, in the order of their rows, go to the end of their columns.
void transpose(const Block::Structure& from, int64_t relations, Block::Structure& to, std::vector<int32_t>& perm) {
  const size_t nodes = from.row_ptr.size() - 1, segments = from.seg_rel.size(), edges = from.col.size();
  std::vector<int32_t> start(relations + 1), by_relation(segments), row(segments);
  for (const int32_t i : from.seg_rel) ++start[i + 1];
  std::partial_sum(start.begin(), start.end(), start.begin());
  for (size_t n = 0; n < nodes; ++n)
    for (int32_t s = from.row_ptr[n]; s < from.row_ptr[n + 1]; ++s) {
      row[s] = int32_t(n);
      by_relation[start[from.seg_rel[s]]++] = s;
    }
  struct Column {
    int32_t edges = 0, segments = 0, last = -1;
  };
  std::vector<Column> columns(nodes);
  const auto each_edge = [&](const auto& body) {
    for (const int32_t s : by_relation)
      for (int32_t e = from.seg_ptr[s]; e < from.seg_ptr[s + 1]; ++e) {
        Column& column = columns[from.col[e]];
        const bool first = column.last != from.seg_rel[s];
        column.last = from.seg_rel[s];
        body(column, first, s, e);
      }
  };
  each_edge([](Column& column, bool first, int32_t, int32_t) { ++column.edges, column.segments += first; });
  to.row_ptr.reserve(nodes + 1);
  int32_t edge = 0, segment = 0;
  for (Column& column : columns) {
    to.row_ptr.push_back(segment);
    const Column counted = column;
    column = {edge, segment, -1};
    edge += counted.edges, segment += counted.segments;
  }
  to.row_ptr.push_back(segment);
  to.seg_rel.resize(segment), to.seg_ptr.resize(segment + 1), to.col.resize(edges), perm.resize(edges);
  to.seg_ptr[segment] = edge;
  each_edge([&](Column& column, bool first, int32_t s, int32_t e) {
    if (first) {
      to.seg_rel[column.segments] = from.seg_rel[s];
      to.seg_ptr[column.segments++] = column.edges;
    }
    to.col[column.edges] = row[s];
    perm[column.edges++] = e;
  });
}

}  // namespace

template <class I> Block sample_block(const Sampling& sampling) {
  Block block;
  Drawn<I> drawn(sampling);
  block.problem = drawn.walk();
  if (!block.problem && drawn.edges() >= size_t(INT32_MAX)) block.problem = "a block must have less than 2^31 edges";
  if (block.problem) return block;
  drawn.order(block);
  transpose(block.forward, sampling.whole.relations, block.backward, block.perm);
  return block;
}

template Block sample_block<int32_t>(const Sampling&);
template Block sample_block<int64_t>(const Sampling&);

}  // namespace tensus
