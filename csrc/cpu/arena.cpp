#include "arena.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tensus {
namespace {

constexpr size_t kPage = size_t(2) << 20;    // a huge page
constexpr size_t kKeep = size_t(512) << 20;  // kept at most

struct alignas(64) Header {  // lies before each block
  void* memory;              // as it was allocated
  size_t capacity;
};

struct Kept {
  Header* header;
  size_t capacity;  // again, so that a search touches no memory that has gone cold
};

struct Arena {
  std::mutex mutex;
  std::vector<Kept> kept;  // the longest unused first
  size_t bytes = 0;
};

Arena& arena() {
  static Arena* const leaked = new Arena;  // tensors may outlive every static object
  return *leaked;
}

// Blocks begin at different offsets within a page: several states are walked through in step, and at equal offsets
// their rows would compete for the same sets of the caches.
Header* allocate(size_t bytes) {
  static std::atomic<size_t> turn{0};
  const size_t offset = (turn++ % 13) * (5 * sizeof(Header));
  const size_t total = (bytes + offset + sizeof(Header) + kPage - 1) / kPage * kPage;
  char* memory = static_cast<char*>(std::aligned_alloc(kPage, total));
  if (!memory) throw std::bad_alloc();
#ifdef __linux__
  madvise(memory, total, MADV_HUGEPAGE);
#endif
  return new (memory + offset) Header{memory, total - offset - sizeof(Header)};
}

}  // namespace

// A lock that is not free at once is not waited for: a child forked while another thread held it would wait forever.
void* acquire_block(size_t bytes) {
  Arena& a = arena();
  if (std::unique_lock<std::mutex> lock(a.mutex, std::try_to_lock); lock.owns_lock())
    for (size_t i = a.kept.size(); i-- > 0;) {
      const auto [header, capacity] = a.kept[i];
      if (capacity < bytes || capacity - bytes > bytes / 4 + kPage) continue;
      a.kept.erase(a.kept.begin() + i);
      a.bytes -= capacity;
      return header + 1;
    }
  return allocate(bytes) + 1;
}

void release_block(void* block) {
  Header* header = static_cast<Header*>(block) - 1;
  Arena& a = arena();
  std::unique_lock<std::mutex> lock(a.mutex, std::try_to_lock);
  if (!lock.owns_lock() || header->capacity > kKeep) return std::free(header->memory);
  a.kept.push_back({header, header->capacity});
  a.bytes += header->capacity;
  while (a.bytes > kKeep) {
    a.bytes -= a.kept.front().capacity;
    std::free(a.kept.front().header->memory);
    a.kept.erase(a.kept.begin());
  }
}

}  // namespace tensus
