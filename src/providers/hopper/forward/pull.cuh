// A spare warp of every block of threads moves units of keys and values from other ranks' memory
// through shared memory into this one's, and sets bits of pieces that producers wait for.
#pragma once

#include "providers/hopper/forward/parameters.h"
#include "providers/hopper/forward/tiles.cuh"
#include "providers/hopper/ptx/flags.cuh"
#include "providers/hopper/ptx/mbarrier.cuh"
#include "providers/hopper/ptx/tma.cuh"

namespace longspan::hopper {

/// Of shared memory: units in flight and a barrier of each.
struct PullShared {
  uint32_t units, full;
};

/// One thread of the launch, at its start: borrowers may read what this rank lends.
__device__ __forceinline__ void admit_borrowers(const PullParameters& p) {
  release_to_system();
#pragma unroll 1
  for (int i = 0; i < p.lent_count; ++i) store_for_system(p.lent[i].ready, 1);
}
/// The same thread at its end: until they have.
__device__ __forceinline__ void await_borrowers(const PullParameters& p) {
#pragma unroll 1
  for (int i = 0; i < p.lent_count; ++i) {
    wait_word_of_system(p.lent[i].done);
    store_for_system(p.lent[i].done, 0);
  }
}

/// Of each puller and producer, once it needs the bits of pieces no more: the last one clears them.
template <class C>
__device__ __forceinline__ void leave(const PullParameters& p) {
  if (last_of(gridDim.x * (C::kPullers + 1), p.through)) *p.there = 0;
}

/// What all that pull have in common: lenders whose memory may be read, and the end.
template <class C>
class Lenders {
 public:
  __device__ __forceinline__ explicit Lenders(const PullParameters& p) : p_(p) {}

  /// The source of a unit, once it may be read, by bulk copies too.
  __device__ __forceinline__ const char* source(const PullUnit& unit) {
    const Loan& loan = p_.loans[unit.loan];
    if (unit.loan < p_.loan_count && !(ready_ >> unit.loan & 1)) {
      wait_word_of_system(loan.ready);
      fence_proxy();
      ready_ |= 1u << unit.loan;
    }
    return static_cast<const char*>(loan.data) + unit.src;
  }
  __device__ __forceinline__ char* target(const PullUnit& unit) const {
    return p_.gathered[unit.loan & 1] + unit.dst;
  }
  /// One of its units has arrived. With the last one the piece is there.
  __device__ __forceinline__ void publish(int piece) const {
    if (last_of(p_.units_of_piece[piece], p_.arrived + piece)) set_release(p_.there, 1u << piece);
  }
  /// One of all pullers has read and published all of its units.
  __device__ __forceinline__ void finish() const {
    if (last_of(gridDim.x * C::kPullers, p_.finished)) tell_lenders();
    leave<C>(p_);
  }

 private:
  __device__ __forceinline__ void tell_lenders() const {
#pragma unroll 1
    for (int i = 0; i < p_.loan_count; ++i) store_for_system(p_.loans[i].ready, 0);
    release_to_system();  // a lender that knows may set it again
#pragma unroll 1
    for (int i = 0; i < p_.loan_count; ++i) store_for_system(p_.loans[i].done, 1);
  }

  const PullParameters& p_;
  uint32_t ready_ = 0;  // loans known to be
};

/// One thread, by bulk copies through shared memory. Ends when this block's units have been
/// published.
template <class C>
class Puller {
 public:
  __device__ __forceinline__ Puller(const PullParameters& p, const PullShared& sm)
      : p_(p), sm_(sm), lenders_(p) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int n = 0; n < C::kPullUnits; ++n) load(n);
    int n = 0, piece = 0;  // piece: of the unit before
#pragma unroll 1
    for (; number(n) < p_.pull_count; ++n) {
      const PullUnit unit = p_.pull_units[number(n)];
      const uint32_t slot = n % C::kPullUnits;
      mbarrier_wait(sm_.full + slot * 8, n / C::kPullUnits & 1);
      bulk_store(lenders_.target(unit), sm_.units + slot * C::kPullBytes, unit.bytes);
      tma_store_commit();
      tma_store_wait_but_one();
      if (n > 0) {
        load(n - 1 + C::kPullUnits);
        publish(piece);
      }
      piece = unit.piece;
    }
    if (n > 0) {
      tma_store_wait();
      publish(piece);
    }
    lenders_.finish();
  }

 private:
  /// The place in the list of this block's n-th unit.
  __device__ __forceinline__ int number(int n) const { return blockIdx.x + n * gridDim.x; }

  __device__ __forceinline__ void load(int n) {
    if (number(n) >= p_.pull_count) return;
    const PullUnit unit = p_.pull_units[number(n)];
    const char* const from = lenders_.source(unit);
    const uint32_t slot = n % C::kPullUnits, bar = sm_.full + slot * 8;
    mbarrier_expect_bytes(bar, unit.bytes);
    bulk_load(sm_.units + slot * C::kPullBytes, from, bar, unit.bytes);
  }

  __device__ __forceinline__ void publish(int piece) const {
    fence_proxy();
    lenders_.publish(piece);
  }

  const PullParameters& p_;
  const PullShared& sm_;
  Lenders<C> lenders_;
};

/// Warps of a block of threads, through registers; `me` counts them.
template <class C>
__device__ __forceinline__ void pull_by_warps(const PullParameters& p, int me, int lane) {
  constexpr int kWarps = C::kPullers, kAtOnce = 4, kStride = 32 * 16;
  Lenders<C> lenders(p);
#pragma unroll 1
  for (int i = blockIdx.x * kWarps + me; i < p.pull_count; i += gridDim.x * kWarps) {
    const PullUnit unit = p.pull_units[i];
    const char* const from = lenders.source(unit);
    char* const to = lenders.target(unit);
#pragma unroll 1
    for (int at = lane * 16; at < unit.bytes; at += kAtOnce * kStride) {
      uint4 data[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (at + j * kStride < unit.bytes) data[j] = load_once(from + at + j * kStride);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (at + j * kStride < unit.bytes) {
          *reinterpret_cast<uint4*>(to + at + j * kStride) = data[j];
        }
      }
    }
    __syncwarp();
    if (lane == 0) lenders.publish(unit.piece);
  }
  __syncwarp();
  if (lane == 0) lenders.finish();
}

/// What a producer knows of the pieces of gathered rows.
class Arrivals {
 public:
  __device__ __forceinline__ explicit Arrivals(const PullParameters& p) : p_(p) {}

  /// Until gathered rows [first, last) are there.
  __device__ __forceinline__ void wait(int first, int last) {
    const int from = first >> p_.piece_log2, to = (last - 1) >> p_.piece_log2;
    const uint32_t needed = (~0u << from) & (~0u >> (kMostPieces - 1 - to));
    if ((needed & ~there_) == 0) return;
    there_ = wait_bits(p_.there, needed);
    fence_proxy();  // what TMA reads comes after the bits
  }

 private:
  const PullParameters& p_;
  uint32_t there_ = 0;
};

}  // namespace longspan::hopper
