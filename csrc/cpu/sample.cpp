#include "sample.h"

#include <algorithm>
#include <bit>
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

// A set of nodes of the whole graph, a bit for each of them, which numbers its members in ascending order.
class NodeSet {
 public:
  explicit NodeSet(int64_t nodes) : bits_(nodes / 64 + 1), before_(bits_.size()) {}

  // Whether it is new.
  bool insert(int64_t node) {
    uint64_t& word = bits_[node / 64];
    const uint64_t bit = uint64_t(1) << (node % 64), known = word & bit;
    word |= bit;
    return !known;
  }

  // Once all are there.
  void number() {
    int32_t total = 0;
    for (size_t w = 0; w < bits_.size(); ++w) {
      before_[w] = total;
      total += std::popcount(bits_[w]);
    }
  }

  int32_t number_of(int64_t node) const {
    const uint64_t below = (uint64_t(1) << (node % 64)) - 1;
    return before_[node / 64] + std::popcount(bits_[node / 64] & below);
  }

 private:
  std::vector<uint64_t> bits_;
  std::vector<int32_t> before_;  // members before each word
};

// What was drawn, in the order in which nodes were found.
template <class I> class Drawn {
 public:
  explicit Drawn(const Sampling& s) : s_(s), nodes_(s.whole.nodes) {}

  const char* walk() {
    for (int64_t k = 0; k < s_.count; ++k) {
      if (s_.seeds[k] < 0 || s_.seeds[k] >= s_.whole.nodes) return "seeds must be nodes of the graph";
      find(s_.seeds[k]);
    }
    size_t begin = 0;
    for (int64_t hop = 0; hop < s_.hops; ++hop) {
      const size_t end = found_.size();
      for (size_t k = begin; k < end; ++k)
        if (const char* problem = row(found_[k], s_.fan_out + hop * s_.whole.relations)) return problem;
      begin = end;
    }
    return nullptr;
  }

  // The same in the order of the nodes.
  void order(Block& block) {
    nodes_.number();
    const size_t nodes = found_.size();
    std::vector<int32_t> place(nodes);  // of each row, where it was found
    block.node.resize(nodes), block.seed_row.resize(s_.count);
    for (size_t k = 0; k < nodes; ++k) {
      const int32_t r = nodes_.number_of(found_[k]);
      place[r] = int32_t(k), block.node[r] = found_[k];
    }
    for (int64_t k = 0; k < s_.count; ++k) block.seed_row[k] = nodes_.number_of(s_.seeds[k]);
    Block::Structure& to = block.forward;
    to.row_ptr.resize(nodes + 1), to.seg_ptr.resize(segments_.size() + 1), to.seg_rel.resize(segments_.size());
    block.segment.resize(segments_.size()), to.col.resize(edges_), block.edge.resize(edges_);
    const I *const seg_ptr = static_cast<const I*>(s_.whole.seg_ptr), *const col = static_cast<const I*>(s_.whole.col);
    int32_t segment = 0, edge = 0;
    for (size_t r = 0; r < nodes; ++r) {
      const size_t k = place[r];
      for (size_t s = k < rows_.size() ? rows_[k] : row_end(k); s < row_end(k); ++s) {
        const Segment& from = segments_[s];
        to.seg_rel[segment] = s_.whole.seg_rel[from.whole];
        block.segment[segment] = from.whole;
        for (int64_t e = 0; e < from.count; ++e, ++edge) {
          block.edge[edge] = from.drawn < 0 ? seg_ptr[from.whole] + e : drawn_[from.drawn + e];
          to.col[edge] = nodes_.number_of(col[block.edge[edge]]);
        }
        to.seg_ptr[++segment] = edge;
      }
      to.row_ptr[r + 1] = segment;
    }
  }

  size_t edges() const { return edges_; }

 private:
  struct Segment {
    int64_t whole;
    int64_t count;  // edges that are kept
    int64_t drawn;  // where these stand among all that were drawn; negative: the whole segment
  };

  size_t row_end(size_t k) const { return k + 1 < rows_.size() ? rows_[k + 1] : segments_.size(); }

  void find(int64_t node) {
    if (nodes_.insert(node)) found_.push_back(int32_t(node));
  }

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
      const bool whole = wanted < 0 || wanted >= all;
      segments_.push_back({s, whole ? all : wanted, whole ? -1 : int64_t(drawn_.size())});
      edges_ += segments_.back().count;
      bool in_range = true;
      if (whole) {
        for (int64_t e = begin; e < end; ++e) in_range &= reach(e);
      } else {
        uint64_t state = s_.seed, mixed = next_bits(state) ^ uint64_t(s);
        draw(next_bits(mixed), all, wanted, positions_);
        for (const int64_t k : positions_) {
          drawn_.push_back(begin + k);
          in_range &= reach(begin + k);
        }
      }
      if (!in_range) return "col must lie in [0, number of nodes)";
    }
    return nullptr;
  }

  bool reach(int64_t e) {
    const I node = static_cast<const I*>(s_.whole.col)[e];
    if (node < 0 || node >= s_.whole.nodes) return false;
    find(node);
    return true;
  }

  const Sampling& s_;
  NodeSet nodes_;
  std::vector<int32_t> found_;
  std::vector<size_t> rows_;  // the first segment of every row that was walked from
  std::vector<Segment> segments_;
  std::vector<int64_t> drawn_, positions_;
  size_t edges_ = 0;
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
