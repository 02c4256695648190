#include "arena.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tensus {
namespace {

constexpr size_t kPage = size_t(2) << 20;       // a huge page
constexpr size_t kKeep = size_t(512) << 20;     // kept at most

struct alignas(64) Header {  // lies before each block
  size_t capacity;
};

struct Arena {
  std::mutex mutex;
  std::vector<Header*> kept;  // the longest unused first
  size_t bytes = 0;
};

Arena& arena() {
  static Arena* const leaked = new Arena;  // tensors may outlive every static object
  return *leaked;
}

Header* allocate(size_t bytes) {
  const size_t total = (bytes + sizeof(Header) + kPage - 1) / kPage * kPage;
  void* memory = std::aligned_alloc(kPage, total);
  if (!memory) throw std::bad_alloc();
#ifdef __linux__
  madvise(memory, total, MADV_HUGEPAGE);
#endif
  return new (memory) Header{total - sizeof(Header)};
}

}  // namespace

// A lock that is not free at once is not waited for: a child forked while another thread held it would wait forever.
void* acquire_block(size_t bytes) {
  Arena& a = arena();
  if (std::unique_lock<std::mutex> lock(a.mutex, std::try_to_lock); lock.owns_lock())
    for (size_t i = a.kept.size(); i-- > 0;) {
      Header* header = a.kept[i];
      if (header->capacity < bytes || header->capacity - bytes > bytes / 4 + kPage) continue;
      a.kept.erase(a.kept.begin() + i);
      a.bytes -= header->capacity;
      return header + 1;
    }
  return allocate(bytes) + 1;
}

void release_block(void* block) {
  Header* header = static_cast<Header*>(block) - 1;
  Arena& a = arena();
  std::unique_lock<std::mutex> lock(a.mutex, std::try_to_lock);
  if (!lock.owns_lock() || header->capacity > kKeep) return std::free(header);
  a.kept.push_back(header);
  a.bytes += header->capacity;
  while (a.bytes > kKeep) {
    a.bytes -= a.kept.front()->capacity;
    std::free(a.kept.front());
    a.kept.erase(a.kept.begin());
  }
}

}  // namespace tensus
