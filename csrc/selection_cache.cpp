#include "selection_cache.h"

#include <cstdlib>
#include <new>
#include <unordered_map>
#ifdef __unix__
#include <pthread.h>
#endif

namespace tensus {
namespace {

// The caches by the address of the rows that own them.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<SelectionCache>> caches;
};

Registry& registry() {
  static Registry* const leaked = [] {  // tensors may outlive every static object
    auto* const made = new Registry;
#ifdef __unix__
    // A child forked while another thread holds the lock would wait for it forever.
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] { registry().mutex.unlock(); });
#endif
    return made;
  }();
  return *leaked;
}

void release_rows(void* rows) {
  std::shared_ptr<SelectionCache> last;  // ends after the lock: it may hold the last reference to other such rows
  {
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.caches.find(rows);
    last = std::move(found->second);
    all.caches.erase(found);
  }
  std::free(rows);
}

}  // namespace

bool SelectionCache::serves(const Tensors& needed, const Tensors& forward, const Tensors& backward) {
  Tensors asked(needed.begin() + 1, needed.end());
  asked.insert(asked.end(), forward.begin(), forward.end());
  asked.insert(asked.end(), backward.begin(), backward.end());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (served_.empty()) served_ = asked, source_rows_ = needed[0].numel();
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.const_data_ptr() == b.const_data_ptr() && a.numel() == b.numel();
  };
  return source_rows_ == needed[0].numel() && served_.size() == asked.size() &&
         std::equal(asked.begin(), asked.end(), served_.begin(), same);
}

Tensor new_rows_with_cache(const Tensor& like, int64_t count, ScalarType index) {
  void* const rows = std::malloc(size_t(count) * sizeof(int64_t) + 1);
  if (!rows) throw std::bad_alloc();
  Registry& all = registry();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.caches[rows] = std::make_shared<SelectionCache>();
  }
  return torch::stable::from_blob(rows, {count}, {1}, like.device(), index, release_rows);
}

std::shared_ptr<SelectionCache> find_cache(const Tensor& rows) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.caches.find(rows.const_data_ptr());
  return found == all.caches.end() ? nullptr : found->second;
}

}  // namespace tensus
