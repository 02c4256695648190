// The scheduler: the threads of a block are fibers, run in turn until they wait for each other or end. Blocks run one
// after the other, but nothing orders their memory accesses in the eyes of the thread sanitizer, as on a GPU.
//
// With -DSIMT_THREADS the kernels are under the thread sanitizer and this file, which is not, tells it what orders
// accesses: barriers do, shuffles and votes do not.
#include "simt.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define ON_ADDRESS(...) __VA_ARGS__
#else
#define ON_ADDRESS(...)
#endif
#ifdef SIMT_THREADS
#include <sanitizer/tsan_interface.h>
#define ON_THREADS(...) __VA_ARGS__
#else
#define ON_THREADS(...)
#endif

namespace simt {
namespace {

constexpr size_t kStack = 64 << 10;
constexpr int64_t kMaxBlocks = (int64_t(1) << 31) - 1;
constexpr size_t kMaxShared = 48 << 10;  // without asking for more

enum class State { ready, at_barrier, at_collective, done };

struct Fiber {
  Thread coordinates;
  State state = State::ready;
  const char* site = nullptr;  // of the barrier
  uint32_t mask = 0;           // of the collective
  Collective collective{};
  Exchange exchange{};
  ucontext_t context;
  void* fake_stack = nullptr;  // of the address sanitizer
  void* shadow = nullptr;      // of the thread sanitizer
  bool started = false;
};

// The stacks of a block's threads and their shadows. Those of a launch are used again by the next one; to the thread
// sanitizer, two blocks of one launch that used the same stacks would be racing.
struct Seats {
  std::unique_ptr<unsigned char[]> stacks;
  std::vector<void*> shadows;

  static const Seats& of(unsigned block, int threads) {
    ON_THREADS(if (false)) block = 0;
    static std::map<std::pair<unsigned, int>, Seats> all;
    Seats& seats = all[{block, threads}];
    if (!seats.stacks) {
      seats.stacks.reset(new unsigned char[threads * kStack]);
      ON_THREADS(for (int t = 0; t < threads; ++t) seats.shadows.push_back(__tsan_create_fiber(0)));
    }
    return seats;
  }
};

uint64_t seed = 0;
int64_t launched = 0;
std::string first_error;

// One block at a time; the scheduler itself runs on the caller's stack.
class Block {
 public:
  Block(unsigned index, unsigned blocks, int threads, size_t shared, Body body, const void* arguments)
      : body(body), arguments(arguments), shared_memory(new unsigned char[shared]), random_(seed + index),
        fibers_(threads), order_(threads), seats_(Seats::of(index, threads)) {
    std::fill_n(shared_memory.get(), shared, 0xff);  // not a number, until it is written
    for (int t = 0; t < threads; ++t) fibers_[t].coordinates = {{unsigned(t)}, {index}, {blocks}}, order_[t] = t;
  }

  // False if something was wrong; the fibers are then left where they are.
  bool run();

  void switch_to_scheduler(bool for_good = false) {
    Fiber& fiber = *now;
    ON_THREADS(__tsan_switch_to_fiber(scheduler_shadow_, __tsan_switch_to_fiber_no_sync));
    ON_ADDRESS(__sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.fake_stack, stack_bottom, stack_size));
    (void)for_good;
    swapcontext(&fiber.context, &scheduler_);
    ON_ADDRESS(__sanitizer_finish_switch_fiber(fiber.fake_stack, &stack_bottom, &stack_size));
  }

  const Body body;
  const void* const arguments;
  const std::unique_ptr<unsigned char[]> shared_memory;
  Fiber* now = nullptr;
  std::string problem;
  const void* stack_bottom = nullptr;  // of the scheduler
  size_t stack_size = 0;
  // Places that stand for the barrier, those of the warps and the end of the threads.
  char barrier_tag, warp_tags[32], end_tag;

 private:
  void start();
  void switch_to(Fiber&);
  bool run_ready();
  bool complete_collectives();
  bool complete_collective(unsigned warp, const Fiber&);
  bool complete_barrier();
  bool report(const Fiber& fiber, const std::string& message) {
    now = const_cast<Fiber*>(&fiber);
    problem = message;
    return false;
  }

  std::mt19937_64 random_;
  std::vector<Fiber> fibers_;
  std::vector<unsigned> order_;
  const Seats& seats_;
  ucontext_t scheduler_;
  void* scheduler_fake_ = nullptr;
  void* scheduler_shadow_ = nullptr;
};

Block* block = nullptr;

void enter() {
  ON_ADDRESS(__sanitizer_finish_switch_fiber(nullptr, &block->stack_bottom, &block->stack_size));
  block->body(block->arguments);
  ON_THREADS(__tsan_release(&block->end_tag));
  block->now->state = State::done;
  block->switch_to_scheduler(true);
}

void Block::start() {
  ON_THREADS(scheduler_shadow_ = __tsan_get_current_fiber());
  for (unsigned t = 0; t < fibers_.size(); ++t) {
    Fiber& fiber = fibers_[t];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = &seats_.stacks[t * kStack];
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
    ON_THREADS(fiber.shadow = seats_.shadows[t]);
  }
}

void Block::switch_to(Fiber& fiber) {
  now = &fiber;
  ON_THREADS(__tsan_switch_to_fiber(fiber.shadow, fiber.started ? __tsan_switch_to_fiber_no_sync : 0));
  fiber.started = true;  // the launch itself orders what came before it
  ON_ADDRESS(__sanitizer_start_switch_fiber(&scheduler_fake_, fiber.context.uc_stack.ss_sp, kStack));
  swapcontext(&scheduler_, &fiber.context);
  ON_ADDRESS(__sanitizer_finish_switch_fiber(scheduler_fake_, nullptr, nullptr));
}

bool Block::run() {
  start();
  const auto is_done = [](const Fiber& fiber) { return fiber.state == State::done; };
  while (problem.empty() && !std::all_of(fibers_.begin(), fibers_.end(), is_done)) {
    const bool ran = run_ready();
    if (!problem.empty()) break;
    const bool collected = complete_collectives();
    if (!problem.empty()) break;
    if (!complete_barrier() && problem.empty() && !ran && !collected)
      report(*std::find_if_not(fibers_.begin(), fibers_.end(), is_done),
             "not all threads reach a barrier or a collective operation that others wait at");
  }
  return problem.empty();
}

bool Block::run_ready() {
  bool ran = false;
  if (seed) std::shuffle(order_.begin(), order_.end(), random_);
  for (const unsigned t : order_) {
    if (fibers_[t].state != State::ready) continue;
    switch_to(fibers_[t]);
    ran = true;
    if (!problem.empty()) break;
  }
  return ran;
}

bool Block::complete_collectives() {
  bool any = false;
  for (unsigned t = 0; t < fibers_.size() && problem.empty(); ++t)
    if (fibers_[t].state == State::at_collective) any |= complete_collective(t / 32 * 32, fibers_[t]);
  return any;
}

// Lets the lanes of a mask go on, if they all wait at the same operation.
bool Block::complete_collective(unsigned warp, const Fiber& fiber) {
  const uint32_t mask = fiber.mask;
  Exchange all{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    if (warp + lane >= fibers_.size()) return report(fiber, "a mask names lanes that the block does not have");
    const Fiber& other = fibers_[warp + lane];
    if (other.state == State::done) return report(other, "a lane has ended that the mask of a collective names");
    if (other.state != State::at_collective || other.mask != mask) return false;
    if (other.collective != fiber.collective) return report(other, "lanes of one mask are at different collectives");
    all.value[lane] = other.exchange.value[lane];
    all.present |= 1u << lane;
  }
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) fibers_[warp + lane].exchange = all, fibers_[warp + lane].state = State::ready;
  return true;
}

bool Block::complete_barrier() {
  const Fiber* waiting = nullptr;
  for (const Fiber& fiber : fibers_)
    if (fiber.state == State::at_barrier) waiting = &fiber;
  if (!waiting) return false;
  for (const Fiber& fiber : fibers_) {
    if (fiber.state == State::done) return report(fiber, std::string("has ended without the barrier ") + waiting->site);
    if (fiber.state != State::at_barrier) return false;
    if (std::string(fiber.site) != waiting->site)
      return report(fiber, std::string("is at the barrier ") + fiber.site + ", another at " + waiting->site);
  }
  for (Fiber& fiber : fibers_) fiber.state = State::ready;
  return true;
}

}  // namespace

const Thread& self() { return block->now->coordinates; }
unsigned char* shared() { return block->shared_memory.get(); }

void barrier(const char* site) {
  block->now->state = State::at_barrier;
  block->now->site = site;
  ON_THREADS(__tsan_release(&block->barrier_tag));
  block->switch_to_scheduler();
  ON_THREADS(__tsan_acquire(&block->barrier_tag));
}

const Exchange& exchange(uint32_t mask, Collective collective, uint64_t value) {
  Fiber& fiber = *block->now;
  const unsigned lane = fiber.coordinates.thread.x % 32;
  if (!(mask >> lane & 1)) fail("the mask of a collective does not name its own lane");
  fiber.state = State::at_collective;
  fiber.mask = mask;
  fiber.collective = collective;
  fiber.exchange.value[lane] = value;
  block->switch_to_scheduler();
  return fiber.exchange;
}

void warp_barrier(uint32_t mask) {
  char& tag = block->warp_tags[block->now->coordinates.thread.x / 32];
  ON_THREADS(__tsan_release(&tag));
  exchange(mask, Collective::barrier, 0);
  ON_THREADS(__tsan_acquire(&tag));
  (void)tag;
}

void fail(const char* message) {
  block->problem = message;
  block->switch_to_scheduler(true);
  std::abort();
}

void run(int64_t blocks, int threads, size_t shared, Body body, const void* arguments) {
  if (!first_error.empty()) return;
  ++launched;
  if (blocks < 1 || blocks > kMaxBlocks || threads < 1 || threads > 1024 || shared > kMaxShared) {
    first_error = "invalid launch";
    return;
  }
  std::vector<std::unique_ptr<Block>> finished;  // kept, for shared memory must not be used again either
  for (int64_t b = 0; b < blocks && first_error.empty(); ++b) {
    finished.push_back(std::make_unique<Block>(unsigned(b), unsigned(blocks), threads, shared, body, arguments));
    block = finished.back().get();
    if (!block->run()) {
      const Thread& thread = block->now->coordinates;
      first_error = "block " + std::to_string(thread.block.x) + ", thread " + std::to_string(thread.thread.x) + ": " +
                    block->problem;
    }
  }
  // Only now may the caller, and the next launch, look at what the threads wrote.
  ON_THREADS(for (const auto& one : finished) __tsan_acquire(&one->end_tag));
  block = nullptr;
}

const char* error() {
  static std::string last;
  last.swap(first_error);
  first_error.clear();
  return last.empty() ? nullptr : last.c_str();
}

void set_seed(uint64_t value) { seed = value; }

}  // namespace simt

extern "C" __attribute__((visibility("default"))) int64_t simt_launches() { return simt::launched; }  // so far
