// Which rows of every state of a DAG matter for some rows of its last one.
#pragma once
#include <vector>

#include "select.h"

namespace tensus {

struct Reach {
  Segments forward, backward;  // backward: only with a support
  Flags has_loop;              // of each relation: whether a node may be joined to itself
  std::vector<int64_t> tails, heads;
  std::vector<int64_t> chosen;  // (edges of the DAG, relations), 0 or 1; empty: all are used
  int64_t states;
};

// For every state, ascending: the rows that the wanted rows of the last state depend on and that, where a support is
// given, can differ from zero if the source does so in these rows alone. Of the last state all wanted rows.
// The structures are trusted (see Kernels::check), and so are wanted and support, which need no order.
template <class I>
std::vector<std::vector<I>> needed_rows(const Reach& reach, const std::vector<int64_t>& wanted,
                                        const std::vector<int64_t>* support);

}  // namespace tensus
