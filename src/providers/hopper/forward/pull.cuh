// A spare warp of every block of threads moves units of keys and values from other ranks' memory
// through shared memory into this one's, and sets bits of pieces that producers wait for.
#pragma once

#include "providers/hopper/forward/parameters.h"
#include "providers/hopper/forward/tiles.cuh"
#include "providers/hopper/ptx/flags.cuh"
#include "providers/hopper/ptx/mbarrier.cuh"
#include "providers/hopper/ptx/tma.cuh"

namespace longspan::hopper {

/// Of shared memory: parts of units in flight, and a barrier of each.
struct PullShared {
  uint32_t parts, full;
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

/// One thread, by bulk copies of parts of units through shared memory. Ends when this block's units
/// have been published.
template <class C>
class Puller {
 public:
  __device__ __forceinline__ Puller(const PullParameters& p, const PullShared& sm)
      : p_(p), sm_(sm), lenders_(p) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int i = 0; i < C::kPullParts; ++i) load();
    int part = 0, piece = 0;  // piece: of the unit before
#pragma unroll 1
    for (int i = blockIdx.x; i < p_.pull_count; i += gridDim.x) {
      const PullUnit unit = p_.pull_units[i];
      char* const to = lenders_.target(unit);
#pragma unroll 1
      for (int at = 0; at < unit.bytes; at += C::kPartBytes, ++part) {
        store(part, to + at, min(C::kPartBytes, unit.bytes - at));
        if (part == 0) continue;
        tma_store_wait_read_but_one();
        load();
        if (at > 0) continue;
        tma_store_wait_but_one();
        publish(piece);
      }
      piece = unit.piece;
    }
    if (part > 0) {
      tma_store_wait();
      publish(piece);
    }
    lenders_.finish();
  }

 private:
  /// Loads the next part, if there is one, in the place of the oldest.
  __device__ __forceinline__ void load() {
    if (left_ == 0 && !begin_unit()) return;
    const int bytes = min(left_, C::kPartBytes);
    const uint32_t slot = loads_++ % C::kPullParts, bar = sm_.full + slot * 8;
    mbarrier_expect_bytes(bar, bytes);
    bulk_load(sm_.parts + slot * C::kPartBytes, from_, bar, bytes);
    from_ += bytes;
    left_ -= bytes;
  }
  /// False where this block has no more units.
  __device__ __forceinline__ bool begin_unit() {
    if (next_ >= p_.pull_count) return false;
    const PullUnit unit = p_.pull_units[next_];
    next_ += gridDim.x;
    from_ = lenders_.source(unit);
    left_ = unit.bytes;
    return true;
  }
  __device__ __forceinline__ void store(int part, char* to, int bytes) const {
    const uint32_t slot = part % C::kPullParts;
    mbarrier_wait(sm_.full + slot * 8, part / C::kPullParts & 1);
    bulk_store(to, sm_.parts + slot * C::kPartBytes, bytes);
    tma_store_commit();
  }
  __device__ __forceinline__ void publish(int piece) const {
    fence_proxy();
    lenders_.publish(piece);
  }

  const PullParameters& p_;
  const PullShared& sm_;
  Lenders<C> lenders_;
  // Of loads.
  int next_ = blockIdx.x;  // unit to begin with
  const char* from_ = nullptr;
  int left_ = 0;  // bytes of a unit
  uint32_t loads_ = 0;
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
