// Memory for states. A fresh allocation of some 30 MB costs more in page faults than a whole pass over a small graph,
// so blocks are kept for the next call when a tensor dies, up to a limit, the longest unused going first. Huge pages
// where the system offers them: the rows of a state are read in random order.
#pragma once
#include <cstddef>

namespace tensus {

constexpr size_t kLarge = size_t(1) << 20;  // bytes from which a block is worth keeping

void* acquire_block(size_t bytes);  // aligned to a cache line, uninitialised; throws std::bad_alloc
void release_block(void* block);

}  // namespace tensus
