// The launchers, for one storage type, which TENSUS_REAL names: f32, f64, f16 or bf16.
#include "kernels.h"

#include <vector>

#include "edge_gradient.h"
#include "gather_mix.h"

#define TENSUS_JOIN_(a, b) a##b
#define TENSUS_JOIN(a, b) TENSUS_JOIN_(a, b)

namespace tensus::cuda {
namespace {

namespace storage {
using f32 = float;
using f64 = double;
using f16 = Float16;
using bf16 = BFloat16;
}  // namespace storage

using T = storage::TENSUS_REAL;
using A = Sum<T>;

// What a thread holds, so that 64 registers are enough: sums of some features, of one or two ranks while they are
// gathered, and of some columns. It reads 16 bytes of a rank at once, or of float16 and bfloat16 8 bytes of each of
// two.
constexpr int kVector = 16 / int(sizeof(A));
constexpr int kWide = 16 / int(sizeof(T));  // of rank 1
#ifndef TENSUS_SHARED_BYTES
#define TENSUS_SHARED_BYTES (15 << 10)
#endif
constexpr size_t kShared = TENSUS_SHARED_BYTES;  // of a block at most, so that half of all warps fit
// Each packs the weights, and leaves partial sums of dw.
constexpr int64_t kMaxBlocks = 4096, kMaxGradientBlocks = 2048;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int power_of_two(int64_t least, int most) {
  int power = 1;
  while (power < least && power < most) power *= 2;
  return power;
}

// Hands out pieces of the scratch memory; without memory it only counts.
class Scratch {
 public:
  explicit Scratch(void* memory) : memory_(static_cast<char*>(memory)) {}

  A* take(int64_t count) {
    A* const piece = memory_ ? reinterpret_cast<A*>(memory_ + used_) : nullptr;
    used_ += (size_t(count) * sizeof(A) + 15) / 16 * 16;
    return piece;
  }

  size_t used() const { return used_; }

 private:
  char* memory_;
  size_t used_ = 0;
};

// A job turned into launches, each over some of the columns; or, if not launching, the count of its scratch memory.
template <class I> class Launches {
 public:
  template <class Job> Launches(const Job& job, Scratch& scratch, void* stream, bool launching)
      : scratch_(scratch), stream_(stream), launching_(launching) {
    const Segments& g = job.graph;
    pass_ = {};
    pass_.row_ptr = static_cast<const I*>(g.row_ptr);
    pass_.seg_rel = g.seg_rel;
    pass_.seg_ptr = static_cast<const I*>(g.seg_ptr);
    pass_.col = static_cast<const I*>(g.col);
    pass_.seg_val = static_cast<const A*>(g.seg_val);
    pass_.edge_val = static_cast<const A*>(g.edge_val);
    pass_.nodes = g.nodes;
    pass_.edges = g.edges;
    pass_.relations = int(g.relations);
    pass_.parts = static_cast<const Part<I>*>(job.order.parts);
    pass_.long_rows = static_cast<const LongRow<I>*>(job.order.long_rows);
    pass_.short_rows = static_cast<const I*>(job.order.short_rows);
    pass_.part_count = Unit<I>(job.order.part_count);
    pass_.long_count = job.order.long_count;
    pass_.units = Unit<I>(job.order.part_count + g.nodes - job.order.long_count);
    pass_.x = job.x;
    pass_.row = job.row;
    pass_.rank = int(job.rank);
    pass_.features = int(job.features);
    pass_.pitch = uint32_t(job.rank * job.features * int64_t(sizeof(T)));
    groups_ = job.groups;
    if (!groups_.end) groups_.end = &job.features;
    aligned_ = is_aligned(job.x);
    for (int64_t l = 0; l < job.link_count; ++l) {
      add_columns(job.links[l]);
      check_size(job.links[l].rank, job.features);
      if (job.links[l].chosen && g.relations > kMaxMasked) error_ = "too many relations to choose among";
    }
    check_size(job.rank, job.features);
    if (g.relations > kMaxSize) error_ = "a size exceeds 2^24";
  }

  void gather_mix(const Loops& loops) {
    pass_.loop = static_cast<const A*>(loops.loop);
    pass_.seg_loop = static_cast<const A*>(loops.seg_loop);
    pass_.pair_ptr = static_cast<const I*>(loops.pairs->row_ptr);
    pass_.pair_rel = loops.pairs->seg_rel;
    bool gradient = false;
    for (const Column& column : columns_) gradient |= column.dw != nullptr;
    each_launch(columns_.size(), [&] { gradient ? choose<true>() : choose<false>(); });
  }

  void edge_gradient(A* grad, bool accumulate) {
    pass_.grad = grad;
    pass_.accumulate = accumulate;
    each_launch(larger<size_t>(columns_.size(), 1), [&] {
      choose_edges();
      pass_.accumulate = true;
    });
  }

  const char* error() const { return error_; }
  size_t most() const { return most_; }

 private:
  static constexpr int64_t kMaxSize = 1 << 24;

  // start() for some of the groups and columns at a time. The next launch may use the same scratch memory: launches of
  // a stream follow each other.
  template <class Start> void each_launch(size_t columns, const Start& start) {
    for (int64_t group = 0; group < groups_.count; group += kMaxGroups) {
      set_groups(group);
      for (size_t first = 0; first < columns && !error_; first += kMaxColumns) {
        set_columns(first, group);
        const Scratch before = scratch_;
        start();
        if (!error_ && launching_) error_ = launch_error();
        most_ = larger(most_, scratch_.used());
        scratch_ = before;
      }
    }
  }

  void set_groups(int64_t first) {
    pass_.groups = int(smaller<int64_t>(kMaxGroups, groups_.count - first));
    pass_.begin = first > 0 ? int(groups_.end[first - 1]) : 0;
    for (int g = 0; g < pass_.groups; ++g) pass_.end = pass_.group_end[g] = int(groups_.end[first + g]);
  }

  static bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

  // Whether the features are vectors of so many: no group ends within one.
  bool has_vectors(int size) const {
    bool fits = aligned_;
    for (int64_t g = 0; g < groups_.count; ++g) fits = fits && groups_.end[g] % size == 0;
    return fits;
  }

  void check_size(int64_t rank, int64_t features) {
    if (rank > kMaxSize || features > kMaxSize) error_ = "a size exceeds 2^24";
    else if (rank * features * int64_t(sizeof(T)) > UINT32_MAX) error_ = "a node has more than 4 GiB";
  }

  void add_columns(const Link& link) {
    for (int64_t q = 0; q < link.rank; ++q) {
      const auto moved = [&](auto* base, size_t size, int64_t by) {
        return base ? (decltype(base))((const char*)base + by * int64_t(size)) : nullptr;
      };
      const int64_t begin = q * pass_.features, weight = q * link.far;
      chosen_.push_back(link.chosen);
      columns_.push_back({moved(link.w, sizeof(A), weight), link.group, link.step, link.near,
                          moved(link.out, sizeof(T), begin), moved(link.other, sizeof(T), begin),
                          uint32_t(link.rank * pass_.features), link.row, moved(link.dw, sizeof(A), weight),
                          link.accumulate});
    }
    aligned_ = aligned_ && is_aligned(link.out) && is_aligned(link.other);
  }

  void set_columns(size_t first, int64_t group) {
    pass_.columns = int(smaller<size_t>(kMaxColumns, columns_.size() - first));
    pass_.masked = pass_.some = false;
    for (int c = 0; c < pass_.columns; ++c) {
      Column& column = pass_.column[c] = columns_[first + c];
      column.w = static_cast<const A*>(column.w) + group * column.group;
      if (column.dw) column.dw = static_cast<A*>(column.dw) + group * column.group;
      pass_.some |= column.row != nullptr;
      pass_.masked |= chosen_[first + c] != nullptr;
    }
    pass_.used = {};
    for (int c = 0; pass_.masked && c < pass_.columns; ++c) {
      const int64_t* const chosen = chosen_[first + c];
      pass_.chosen[c] = {};
      for (int i = 0; i < pass_.relations; ++i)
        if (!chosen || chosen[i])
          pass_.chosen[c].bits[i / 32] |= 1u << (i % 32), pass_.used.bits[i / 32] |= 1u << (i % 32);
    }
  }

  void set_lanes(int lanes) {
    pass_.lanes = lanes;
    pass_.teams = 32 / lanes;
    for (pass_.lane_bits = 0; 1 << pass_.lane_bits < lanes;) ++pass_.lane_bits;
  }

  void set_packed(int ranks, int width) {
    pass_.ranks = int(ceil_div(pass_.rank, ranks)) * ranks;
    pass_.width = width;
    const int64_t size = (int64_t(pass_.relations) + 1) * pass_.ranks * width, packed = size * pass_.groups;
    pass_.group_size = int(size);
    pass_.packed = int(packed);
    if (packed > INT32_MAX / kThreads) error_ = "the weights of one pass are too many";
  }

  // Shared memory for the weights or, where it is too small, a copy in global memory.
  size_t place_weights(size_t used) {
    const size_t bytes = size_t(pass_.packed) * sizeof(A);
    pass_.w = nullptr;
    if (used + bytes <= kShared) return used + (bytes + 15) / 16 * 16;
    pass_.w = scratch_.take(pass_.packed);
    if (launching_)
      launch(pack_weights<A, I>, smaller(int64_t(1024), ceil_div(pass_.packed, kThreads)), kThreads, 0, stream_, pass_);
    return used;
  }

  // What is usual, at compile time: one rank or two, vectors, indices of 32 bits. The rest takes a path that can do
  // it all: features one by one, at any address, and indices that take twice the registers.
  template <bool kGradient> void choose() {
    if constexpr (sizeof(I) == 4) {
      if (pass_.rank == 1 && has_vectors(kWide)) return run<1, kWide, kGradient>();
      if (has_vectors(kVector)) return run<2, kVector, kGradient>();
    }
    run<2, 1, kGradient>();
  }

  void choose_edges() {
    if constexpr (sizeof(I) == 4)
      if (has_vectors(kVector)) return run_edges<2, kVector>();
    run_edges<2, 1>();
  }

  template <int P, int V, bool kGradient> void run() {
    constexpr int Q = smaller(4, 16 / V);
    pass_.mixers = power_of_two(ceil_div(pass_.columns, Q), kMaxColumns / Q);
    // As many lanes as products, which are shared out among them.
    const int least = kGradient ? P * kPair : 1;
    set_lanes(larger(least, power_of_two(ceil_div(pass_.end - pass_.begin, V), 32 / pass_.mixers)));
    set_packed(P, pass_.mixers * Q);
    if (error_) return;
    const bool work = pass_.nodes > 0 && pass_.features > 0;
    const int64_t most = work ? kGradient ? kMaxGradientBlocks : kMaxBlocks : 0;
    pass_.blocks = int(smaller(most, ceil_div(pass_.units, kWarps)));
    size_t shared = work ? place_weights(sizeof(Header)) : 0;
    int64_t sums = 0;
    if constexpr (kGradient) {
      const size_t bytes = size_t(kWarps) * pass_.packed * sizeof(A);
      pass_.dw = nullptr;
      if (shared + bytes <= kShared) shared += bytes;
      else pass_.dw = scratch_.take(int64_t(pass_.blocks) * kWarps * pass_.packed);
      pass_.partial_dw = scratch_.take(int64_t(pass_.blocks) * pass_.packed);
      sums = ceil_div(pass_.packed, kNeighbours);
    }
    pass_.partial_out = scratch_.take(int64_t(pass_.part_count) * pass_.columns * pass_.features);
    if (!launching_) return;
    if (work) launch(cuda::gather_mix<T, I, P, Q, V, kGradient>, pass_.blocks, kThreads, shared, stream_, pass_);
    constexpr int kAdded = smaller(V, kVector);  // features that a thread adds up
    pass_.row_threads = power_of_two(pass_.columns * ((pass_.end - pass_.begin) / kAdded), kFinishThreads);
    const int64_t rows = work ? ceil_div(pass_.long_count, kFinishThreads / pass_.row_threads) : 0;
    if (sums + rows > 0)
      launch(finish<T, I, kAdded>, sums + rows, kFinishThreads, kFinishThreads * sizeof(double), stream_, pass_);
  }

  template <int P, int V> void run_edges() {
    set_lanes(power_of_two(ceil_div(pass_.end - pass_.begin, V), 32));
    set_packed(P, pass_.columns);
    if (error_ || pass_.edges == 0) return;
    const size_t shared = place_weights(0);
    const int64_t blocks = smaller(kMaxBlocks, ceil_div(pass_.units, kWarps));
    if (launching_) launch(cuda::edge_gradient<T, I, P, V>, blocks, kThreads, shared, stream_, pass_);
  }

  Pass<A, I> pass_;
  std::vector<Column> columns_;
  std::vector<const int64_t*> chosen_;  // by each column, see Link
  Groups groups_;
  Scratch& scratch_;
  void* stream_;
  bool launching_, aligned_;
  size_t most_ = 0;
  const char* error_ = nullptr;
};

// Runs the job or, where `most` is given, only counts the scratch memory that it needs.
template <class Job, class Run>
const char* typed(const Job& job, void* memory, void* stream, size_t* most, const Run& run) {
  Scratch scratch(memory);
  const auto go = [&](auto launches) {
    run(launches);
    if (most) *most = launches.most();
    return launches.error();
  };
  return job.graph.wide ? go(Launches<int64_t>(job, scratch, stream, !most))
                        : go(Launches<int32_t>(job, scratch, stream, !most));
}

const char* run(const GatherMix& job, void* memory, void* stream, size_t* most) {
  return typed(job, memory, stream, most, [&](auto& launches) { launches.gather_mix(job.loops); });
}

const char* run(const EdgeGradient& job, void* memory, void* stream, size_t* most) {
  return typed(job, memory, stream, most,
               [&](auto& launches) { launches.edge_gradient(static_cast<A*>(job.grad), job.accumulate); });
}

template <class Job> size_t scratch_of(const Job& job) {
  size_t most = 0;
  run(job, nullptr, nullptr, &most);
  return most;
}

template <class Job> const char* run_now(const Job& job, void* memory, void* stream) {
  return run(job, memory, stream, nullptr);
}

}  // namespace

const Kernels TENSUS_JOIN(kernels_, TENSUS_REAL) = {scratch_of<GatherMix>, run_now<GatherMix>, scratch_of<EdgeGradient>,
                                                    run_now<EdgeGradient>};

}  // namespace tensus::cuda
