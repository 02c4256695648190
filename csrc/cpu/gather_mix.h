// Gather, then mix: one sparse pass of the width of the near state serves all its links.
#pragma once
#include <type_traits>

#include "weights.h"

namespace tensus {
namespace {

constexpr int64_t kPanelBytes = 16384;    // gathered sums of one row that are mixed together; half of a small L1
constexpr int64_t kMaxRoom = 32;          // and at most this many segments
constexpr int64_t kMaxPartial = 1 << 22;  // numbers in the partial sums of dw

// One pass over the rows of a graph: gather the sums of a row's segments into L1, then mix them into every link.
// R is the rank of x.
template <class T, class I, int R, int F> class GatherMixPass {
  using A = Sum<T>;
  using Lanes = Pack<A, kLanes<A>>;

 public:
  explicit GatherMixPass(const GatherMix& job)
      : job_(job), g_(job.graph), weights_(job.links, job.link_count, g_.relations, job.rank, true),
        diagonal_(job.loops, job.graph, weights_), width_(job.rank * job.features) {
    for (int64_t l = 0; l < job.link_count; ++l)
      if (job.links[l].dw) dw_ = g_.relations * weights_.size();
    room_ = smaller(kMaxRoom, 1 + kPanelBytes / (1 + width_ * int64_t(sizeof(A))));
    chunks_ = g_.chunks(smaller(kMaxChunks, 1 + kMaxPartial / (1 + dw_)));
  }

  void run() const {
    Scratch<A> partial(chunks_ * dw_);
    share(job_.team, chunks_, [&](const auto& next) {
      Thread thread(*this);
      for (int64_t chunk; (chunk = next()) >= 0;) {
        thread.clear();
        const int64_t end = g_.first_row(chunk + 1, chunks_);
        for (int64_t n = g_.first_row(chunk, chunks_); n < end; ++n) thread.row(n);
        if (dw_) thread.reduce(&partial[chunk * dw_]);
      }
    });
    for (int64_t i = 0; dw_ && i < g_.relations; ++i)
      weights_.each_entry([&](int64_t l, int64_t at, int64_t k) {
        const Link& link = job_.links[l];
        if (!link.dw) return;
        double sum = 0;
        for (int64_t chunk = 0; chunk < chunks_; ++chunk) sum += partial[chunk * dw_ + i * weights_.size() + k];
        ((A*)link.dw)[i * link.step + at] = A(sum);
      });
  }

 private:
  // What a thread keeps at hand. The inner products of dw stay spread over vector lanes until the end of a chunk.
  struct Thread {
    const GatherMixPass& pass;
    Scratch<A> panel, matrix;
    Scratch<Lanes> dw, dw_base, product;

    explicit Thread(const GatherMixPass& pass)
        : pass(pass), panel((pass.room_ + 1) * pass.width_), matrix(pass.weights_.size()), dw(pass.dw_),
          dw_base(pass.weights_.size()), product(pass.weights_.size()) {
      for (int64_t k = 0; k < pass.weights_.size(); ++k) product[k] = Lanes{};
    }

    void clear() {
      for (int64_t k = 0; k < pass.dw_; ++k) dw[k] = Lanes{};
      for (int64_t k = 0; k < pass.weights_.size(); ++k) dw_base[k] = Lanes{};
    }

    int64_t features() const { return known<F>(pass.job_.features); }
    int64_t width() const { return known<R * F>(pass.width_); }

    // Gathers as many segments as there is room for, mixes them, and goes on with the rest of the row.
    void row(int64_t n) {
      const A* block[kMaxRoom + 1];
      int64_t relation[kMaxRoom];
      int64_t s = pass.g_.row_ptr[n];
      const int64_t end = pass.g_.row_ptr[n + 1];
      const int64_t near = row_of<I>(pass.job_.row, n);
      bool first = true;
      do {
        const int64_t count = smaller(end - s, pass.room_);
        for (int64_t b = 0; b < count; ++b, ++s) {
          A* const sums = &panel[b * width()];
          relation[b] = pass.g_.seg_rel[s];
          block[b] = sums;
          gather_segment<R * F>(pass.g_, s, (const T*)pass.job_.x, width(), sums);
        }
        const bool self = first && near >= 0 && pass.diagonal_;
        if (self) block[count] = as_sums((const T*)pass.job_.x + near * width(), width(), &panel[count * width()]);
        mix_links(n, block, relation, count, self, first);
        if (pass.dw_) multiply_links(n, block, relation, count, self);
        first = false;
      } while (s < end);
    }

    // The next row of a link's state. Rows follow each other, but too many streams run side by side for the hardware.
    // Link by link, as each is worked on: a core can't wait for the rows of all of them at once.
    TENSUS_INLINE void prefetch_next(const Link& link, const void* state, int64_t n) const {
      if (n + 1 == pass.g_.nodes) return;
      const int64_t next = row_of<I>(link.row, n + 1), bytes = link.rank * features() * int64_t(sizeof(T));
      if (next < 0) return;
      const char* const row = (const char*)state + next * bytes;
      for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
    }

    // The first `count` blocks are sums of segments; the node itself follows where `self`.
    TENSUS_INLINE void mix_links(int64_t n, const A* const* block, const int64_t* relation, int64_t count, bool self,
                                 bool first) {
      const A* choice[kMaxRoom + 1];
      for (int64_t b = 0; b < count; ++b) choice[b] = pass.weights_.of(relation[b]);
      if (self) choice[count] = pass.diagonal_.matrices(n, matrix.get());
      const int64_t total = count + self;
      for (int64_t l = 0; l < pass.job_.link_count; ++l) {
        const Link& link = pass.job_.links[l];
        const int64_t to = row_of<I>(link.row, n);
        if (link.out && to >= 0) {
          prefetch_next(link, link.out, n);
          const bool add = !first || (link.written ? link.written[to] : link.accumulate);
          if (link.written) link.written[to] = 1;
          for_rank(link.rank, [&]<int C>() TENSUS_FORCE {
            mix<R, C, F>(block, choice, total, pass.job_.rank, link.rank, features(),
                         (T*)link.out + to * link.rank * features(), add);
          });
        }
        for (int64_t b = 0; b < total; ++b) choice[b] += link.step;
      }
    }

    TENSUS_INLINE void multiply_links(int64_t n, const A* const* block, const int64_t* relation, int64_t count,
                                      bool self) {
      const int64_t weights = pass.weights_.size();
      for (int64_t l = 0, offset = 0; l < pass.job_.link_count; offset += pass.job_.links[l++].step) {
        const Link& link = pass.job_.links[l];
        const int64_t far = row_of<I>(link.row, n);
        if (!link.dw || far < 0) continue;
        const T* const other = (const T*)link.other + far * link.rank * features();
        prefetch_next(link, link.other, n);
        for_rank(link.rank, [&]<int C>() TENSUS_FORCE {
          const auto multiply = [&](const A* x, Lanes* lanes) TENSUS_FORCE {
            inner<R, C, F>(x, other, pass.job_.rank, link.rank, features(), lanes + offset);
          };
          for (int64_t b = 0; b < count; ++b) multiply(block[b], &dw[relation[b] * weights]);
          if (self) multiply(block[count], product.get());
        });
      }
      if (self) share_product(n);
    }

    // The product of a node with itself belongs to every relation with a loop; it is left at zero for the next node.
    TENSUS_INLINE void share_product(int64_t n) {
      const int64_t weights = pass.weights_.size();
      pass.diagonal_.each_correction(n, [&](int64_t i, A weight) TENSUS_FORCE {
        for (int64_t k = 0; k < weights; ++k) dw[i * weights + k] += weight * product[k];
      });
      for (int64_t k = 0; k < weights; ++k) {
        dw_base[k] += product[k];
        product[k] = Lanes{};
      }
    }

    void reduce(A* partial) const {
      const int64_t weights = pass.weights_.size();
      for (int64_t i = 0; i < pass.g_.relations; ++i)
        for (int64_t k = 0; k < weights; ++k) {
          partial[i * weights + k] = sum_lanes<A>(dw[i * weights + k]);
          if (pass.diagonal_) partial[i * weights + k] += pass.diagonal_.loop(i) * sum_lanes<A>(dw_base[k]);
        }
    }
  };

  const GatherMix& job_;
  const Rows<A, I> g_;
  const Weights<A> weights_;
  const Diagonal<A, I> diagonal_;
  const int64_t width_;
  int64_t room_, chunks_;
  int64_t dw_ = 0;  // numbers in the gradient of all weights, or 0 where it is not asked for
};

// What is known at compile time of the usual jobs; a graph that needs 64-bit indices waits for its memory anyhow.
template <class T, class I> void gather_mix_pass(const GatherMix& job) {
  if constexpr (std::is_same_v<I, int32_t>)
    for_rank(job.rank, [&]<int R>() {
      if constexpr (R && std::is_same_v<T, float>)
        for_features(job.features, [&]<int F>() { GatherMixPass<T, I, R, F>(job).run(); });
      else GatherMixPass<T, I, R, 0>(job).run();
    });
  else GatherMixPass<T, I, 0, 0>(job).run();
}

}  // namespace
}  // namespace tensus
