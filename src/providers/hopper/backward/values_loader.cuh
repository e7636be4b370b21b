// The thread that loads operands of announced walks, and the warp that reads what rows need and
// makes rows zeros.
#pragma once

#include "providers/hopper/backward/operands.cuh"
#include "providers/hopper/backward/values_shared.cuh"
#include "providers/hopper/forward/rows.cuh"

namespace longspan::hopper {

template <class C>
class ValueLoader {
 public:
  __device__ __forceinline__ ValueLoader(const ValueParameters& p, const ValueShared& sm)
      : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
    for (int number = 0;; ++number) {
      const int slot = number & (C::kWalks - 1);
      bounded_wait(sm_.walk_full + slot * 8, number / C::kWalks & 1);
      volatile ValueWalk& walk = sm_.walks[slot];
      left_ = walk.steps;
      if (left_ < 0) return;
      if (left_ <= C::kDrawsAhead) mbarrier_arrive(sm_.draw);
      if (left_ > 0) load(walk);
      mbarrier_arrive(sm_.walk_empty + slot * 8);
    }
  }

 private:
  __device__ __forceinline__ void load(volatile ValueWalk& walk) {
    const Coordinates keys = coordinates_of(p_.k, walk.row, walk.head);
    const Coordinates values = coordinates_of(p_.v, walk.row, walk.head);
    const int q_row = walk.q_row, queries = walk.queries;
    bool first = true;
#pragma unroll 1
    for (int head = walk.first_head; head < walk.last_head; ++head) {
      const int query_head = p_.chunk.first_head + head;
      const int last = walk.last_line;
#pragma unroll 1
      for (int line = walk.first_line; line < last; ++line, ++step_) {
        const int row = q_row + line * kUnitQueries;
        if (first) load_resident(p_.k, keys, sm_.keys, C::kKeyBlocks, sm_.keys_full);
        load_queries(coordinates_of(p_.q, row, query_head));
        if (first) load_resident(p_.v, values, sm_.values, C::kValueBlocks, sm_.values_full);
        load_dout(coordinates_of(p_.dout, row, query_head), queries - line * kUnitQueries);
        first = false;
        if (--left_ == C::kDrawsAhead) mbarrier_arrive(sm_.draw);
      }
    }
    ++walks_;
  }

  /// K or V. The barrier that says that their place is free comes behind `full`.
  __device__ __forceinline__ void load_resident(const Operand& from, const Coordinates& c,
                                                uint32_t to, int blocks, uint32_t full) {
    bounded_wait(full + 8, (walks_ & 1) ^ 1);
    mbarrier_expect_bytes(full, blocks * C::kColumnBytes);
    load_rows(to, from.tensor, full, C::kColumnBytes, c, 0, blocks);
  }

  __device__ __forceinline__ void load_queries(const Coordinates& c) {
#pragma unroll 1
    for (int i = 0; i < C::kKeyBlocks; ++i) {
      bounded_wait(sm_.queries_empty + i * 8, (step_ & 1) ^ 1);
      mbarrier_expect_bytes(sm_.queries_full + i * 8, C::kColumnBytes);
      load_rows(sm_.queries + i * C::kColumnBytes, p_.q.tensor, sm_.queries_full + i * 8,
                C::kColumnBytes, c, i);
    }
  }

  /// `valid` rows are the region's.
  __device__ __forceinline__ void load_dout(const Coordinates& c, int valid) {
    const int stage = step_ % C::kDoutStages;
    bounded_wait(sm_.dout_empty + stage * 8, (step_ / C::kDoutStages & 1) ^ 1);
    const uint32_t bar = (valid < kUnitQueries ? sm_.surplus_full : sm_.dout_full) + stage * 8;
    mbarrier_expect_bytes(bar, C::kValueBytes);
    load_rows(sm_.dout + stage * C::kValueBytes, p_.dout.tensor, bar, C::kColumnBytes, c, 0,
              C::kValueBlocks);
  }

  const ValueParameters& p_;
  const ValueShared& sm_;
  int walks_ = 0, step_ = 0;  // number of this walk among those with steps, and of this step
  int left_ = 0;              // steps of the walk
};

/// LSE and delta of each step's queries, LSE first. Of sixteen queries, a thread's four lie
/// together: 2 (lane % 4) and the next one, and those eight further.
template <class C>
class ValueReader {
 public:
  __device__ __forceinline__ ValueReader(const ValueParameters& p, const ValueShared& sm, int lane)
      : p_(p), sm_(sm), lane_(lane) {
    const int place = lane / 16 * 16 + lane / 2 % 4 * 4 + lane / 8 % 2 * 2 + lane % 2;
    place_ = place * 4;
  }

  __device__ __forceinline__ void run() {
    for (int number = 0;; ++number) {
      const int slot = number & (C::kWalks - 1);
      bounded_wait(sm_.walk_full + slot * 8, number / C::kWalks & 1);
      volatile ValueWalk& walk = sm_.walks[slot];
      if (walk.steps < 0) return;
      if (walk.steps > 0) read(walk);
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(sm_.walk_empty + slot * 8);
    }
  }

 private:
  static constexpr int kEach = kUnitQueries / 32;

  __device__ __forceinline__ void read(volatile ValueWalk& walk) {
#pragma unroll 1
    for (int head = walk.first_head; head < walk.last_head; ++head) {
#pragma unroll 1
      for (int line = walk.first_line; line < walk.last_line; ++line, ++step_) {
        const int left = walk.queries - line * kUnitQueries;
        publish(walk, head, line, left);
        if (left < kUnitQueries) clear(left);
      }
    }
  }

  __device__ __forceinline__ void publish(volatile ValueWalk& walk, int head, int line, int left) {
    const float2* const from = reinterpret_cast<const float2*>(p_.statistics) +
                               (p_.chunk.first_head + head) * p_.rows + walk.q_row +
                               line * kUnitQueries + lane_;
    float2 rows[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      rows[i] = {kInfinity, 0};  // of rows that do not exist: P and dS are 0
      if (lane_ + 32 * i < left) rows[i] = __ldg(from + 32 * i);
    }
    const Line blocks = p_.chunk.lines[walk.line + line];
    const int slot = step_ % C::kStatistics;
    bounded_wait(sm_.step_empty + slot * 8, (step_ / C::kStatistics & 1) ^ 1);
    const uint32_t to = sm_.statistics + slot * C::kStatisticBytes + place_;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      store_shared(to + i * 128, rows[i].x);
      store_shared(to + C::kStatisticBytes / 2 + i * 128, rows[i].y);
    }
    if (lane_ == 0) describe(walk, sm_.steps[slot], head, line, blocks);
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(sm_.step_full + slot * 8);
  }

  __device__ __forceinline__ void describe(volatile ValueWalk& walk, volatile ValueStep& step,
                                           int head, int line, const Line& blocks) const {
    step.block =
        head * p_.chunk.head_blocks + blocks.first + walk.tile * (kGradientRows / kBlockSide);
    step.pitch = blocks.pitch;
    const int first = line * kUnitQueries;
    const int keys = walk.rows, queries = walk.queries - first;
    const int lo = walk.lo + first, hi = walk.hi + first;
    step.keys = keys, step.queries = queries, step.lo = lo, step.hi = hi;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const int key = group * 64;
      step.hides[group] = queries < kUnitQueries || keys < key + 64 ||
                          key - (kUnitQueries - 1) < lo || key + 63 > hi;
    }
  }

  static __device__ __forceinline__ void store_shared(uint32_t to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
  }

  /// Zeroes the rows of dout that are not the region's, and passes the stage on: P is 0 there, but
  /// what lies there may be NaN.
  __device__ __forceinline__ void clear(int valid) {
    const int stage = step_ % C::kDoutStages;
    bounded_wait(sm_.surplus_full + stage * 8, surpluses_ >> stage & 1);
    surpluses_ ^= 1 << stage;
    clear_rows(sm_.dout + stage * C::kValueBytes, C::kValueBlocks, C::kColumnBytes, valid, lane_);
    if (lane_ == 0) mbarrier_arrive(sm_.dout_full + stage * 8);
  }

  const ValueParameters& p_;
  const ValueShared& sm_;
  int lane_;
  uint32_t place_;  // of its first row
  int step_ = 0;
  int surpluses_ = 0;  // parities of surplus_full
};

}  // namespace longspan::hopper
