// How work is shared among the threads of a team, in sources that are compiled once; kernels.cpp has its own, work.h.
#pragma once
#include <algorithm>
#include <atomic>

#include "kernels.h"

namespace tensus {

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
  static constexpr int64_t kMost = 256, kRows = 1024;  // rows of a chunk, at least

  explicit Chunks(int64_t size) : size(size), count(std::min(kMost, 1 + size / kRows)) {}
  int64_t first(int64_t chunk) const { return size / count * chunk + std::min(chunk, size % count); }

  int64_t size, count;
};

}  // namespace tensus
