#include "needed.h"

#include <map>

namespace tensus {
namespace {

using Marks = std::vector<std::vector<char>>;  // (states, nodes)

template <class I> std::vector<I> marked(const std::vector<char>& marks) {
  std::vector<I> rows;
  for (size_t n = 0; n < marks.size(); ++n)
    if (marks[n]) rows.push_back(I(n));
  return rows;
}

Flags used(const Reach& reach, size_t edge) {
  const size_t relations = reach.has_loop.size();
  if (reach.chosen.empty()) return Flags(relations, 1);
  const auto first = reach.chosen.begin() + int64_t(edge * relations);
  return Flags(first, first + int64_t(relations));
}

// One step from the rows of state `from` along its edges of the DAG, which lead to the states `to`: marks the columns
// of the structure there. Edges that use the same relations are walked together.
template <class I>
void walk(const Reach& reach, const Segments& g, int64_t from, const std::vector<int64_t>& near,
          const std::vector<int64_t>& far, const std::vector<I>& rows, Marks& marks) {
  std::map<Flags, std::vector<char*>> together;
  for (size_t e = 0; e < near.size(); ++e)
    if (near[e] == from) together[used(reach, e)].push_back(marks[far[e]].data());
  const I *row_ptr = static_cast<const I*>(g.row_ptr), *seg_ptr = static_cast<const I*>(g.seg_ptr),
          *col = static_cast<const I*>(g.col);
  for (const auto& [flags, targets] : together) {
    bool loops = false;
    for (size_t i = 0; i < flags.size(); ++i) loops |= flags[i] && reach.has_loop[i];
    for (const I n : rows) {
      for (char* const target : targets) target[n] |= loops;
      for (I s = row_ptr[n]; s < row_ptr[n + 1]; ++s)
        if (flags[g.seg_rel[s]])
          for (I e = seg_ptr[s]; e < seg_ptr[s + 1]; ++e)
            for (char* const target : targets) target[col[e]] = 1;
    }
  }
}

}  // namespace

template <class I>
std::vector<std::vector<I>> needed_rows(const Reach& reach, const std::vector<int64_t>& wanted,
                                        const std::vector<int64_t>* support) {
  const std::vector<char> none(reach.forward.nodes);
  Marks possible(support ? reach.states : 0, none), needed(reach.states, none);
  if (support) {
    for (const int64_t n : *support) possible[0][n] = 1;
    for (int64_t j = 0; j + 1 < reach.states; ++j)
      walk<I>(reach, reach.backward, j, reach.tails, reach.heads, marked<I>(possible[j]), possible);
  }
  std::vector<std::vector<I>> rows(reach.states);
  const int64_t last = reach.states - 1;
  for (const int64_t n : wanted) needed[last][n] = 1;
  for (int64_t k = last; k >= 0; --k) {
    for (int64_t n = 0; support && k < last && n < reach.forward.nodes; ++n) needed[k][n] &= possible[k][n];
    rows[k] = marked<I>(needed[k]);
    walk<I>(reach, reach.forward, k, reach.heads, reach.tails, rows[k], needed);
  }
  return rows;
}

template std::vector<std::vector<int32_t>> needed_rows(const Reach&, const std::vector<int64_t>&,
                                                       const std::vector<int64_t>*);
template std::vector<std::vector<int64_t>> needed_rows(const Reach&, const std::vector<int64_t>&,
                                                       const std::vector<int64_t>*);

}  // namespace tensus
