// Selections that passes over a graph have made (see cpu/select.h), kept as long as the rows that they are for.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "arguments.h"
#include "cpu/select.h"

namespace tensus {

// What decides on a selection: the relations in use and, where these have not all rows, the states in their roles.
struct SelectionKey {
  bool transposed;
  Flags used;
  Ints states;
  bool mixed_first, loops, edge_numbers, segment_numbers;

  auto operator<=>(const SelectionKey&) const = default;
};

class SelectionCache {
 public:
  // Whether it is for these rows and structures: at the first call it is from then on.
  bool serves(const Tensors& needed, const Tensors& forward, const Tensors& backward);

  // The selection of this key, made if there is none.
  template <class Make> std::shared_ptr<const Selection> fetch(const SelectionKey& key, const Make& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<const Selection>& kept = kept_[key];
    if (!kept) kept = make();
    return kept;
  }

  // The edges of each relation, counted once.
  template <class Count> Ints edges(bool transposed, const Count& count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Ints& edges = edges_[transposed];
    if (edges.empty()) edges = count();
    return edges;
  }

 private:
  std::mutex mutex_;
  Tensors served_;       // alive, so that no other tensors can lie where they do
  int64_t source_rows_;  // of the first state; its list of rows owns the cache
  std::map<SelectionKey, std::shared_ptr<const Selection>> kept_;
  Ints edges_[2];
};

// Room for a list of rows, to which a cache belongs.
Tensor new_rows_with_cache(const Tensor& like, int64_t count, ScalarType index);
// The cache of a list of rows; none where it was made otherwise.
std::shared_ptr<SelectionCache> find_cache(const Tensor& rows);

}  // namespace tensus
