// A spare warp of every block of threads moves units of keys and values from other ranks' memory
// through shared memory into this one's, and counts them in words that producers wait for.
#pragma once

#include "providers/hopper/forward/parameters.h"
#include "providers/hopper/forward/tiles.cuh"
#include "providers/hopper/ptx/bulk.cuh"
#include "providers/hopper/ptx/flags.cuh"
#include "providers/hopper/ptx/mbarrier.cuh"

namespace longspan::hopper {

/// Of shared memory: units in flight and a barrier of each.
struct PullShared {
  uint32_t units, full;
};

/// One thread. Ends when this block's units have been published, the last block's when all lenders
/// have been told.
template <class C>
class Puller {
 public:
  __device__ __forceinline__ Puller(const PullParameters& p, const PullShared& sm)
      : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int n = 0; n < C::kPullUnits; ++n) load(n);
    int n = 0;
#pragma unroll 1
    for (; number(n) < p_.pull_count; ++n) {
      const PullUnit& unit = p_.pull_units[number(n)];
      const uint32_t slot = n % C::kPullUnits;
      mbarrier_wait(sm_.full + slot * 8, n / C::kPullUnits & 1);
      bulk_store(p_.gathered[unit.loan & 1] + unit.dst, sm_.units + slot * C::kPullBytes,
                 unit.bytes);
      tma_store_commit();
      tma_store_wait_but_one();
      if (n == 0) continue;
      load(n - 1 + C::kPullUnits);
      publish(n - 1);
    }
    if (n > 0) {
      tma_store_wait();
      publish(n - 1);
    }
    finish();
  }

 private:
  /// The place in the list of this block's n-th unit.
  __device__ __forceinline__ int number(int n) const { return blockIdx.x + n * gridDim.x; }

  __device__ __forceinline__ void load(int n) {
    if (number(n) >= p_.pull_count) return;
    const PullUnit& unit = p_.pull_units[number(n)];
    const Loan& loan = p_.loans[unit.loan];
    if (unit.loan < p_.loan_count && !(ready_ >> unit.loan & 1)) {
      wait_word<Scope::kSystem>(loan.ready, 1);
      fence_proxy();
      ready_ |= 1u << unit.loan;
    }
    const uint32_t slot = n % C::kPullUnits, bar = sm_.full + slot * 8;
    mbarrier_expect_bytes(bar, unit.bytes);
    bulk_load(sm_.units + slot * C::kPullBytes, static_cast<const char*>(loan.data) + unit.src,
              unit.bytes, bar);
  }

  __device__ __forceinline__ void publish(int n) const {
    fence_proxy();
    add_release(p_.arrived + p_.pull_units[number(n)].piece);
  }

  /// The last block's turn: nobody reads the loans any more.
  __device__ __forceinline__ void finish() const {
    if (add_and_acquire(p_.finished) + 1 != gridDim.x) return;
    for (int i = 0; i < p_.loan_count; ++i) {
      store_release_system(p_.loans[i].ready, 0);  // before the lender may set it again
      store_release_system(p_.loans[i].done, 1);
    }
  }

  const PullParameters& p_;
  const PullShared& sm_;
  uint32_t ready_ = 0;  // loans known to be
};

/// What a producer knows of the pieces of gathered rows.
class Arrivals {
 public:
  __device__ __forceinline__ explicit Arrivals(const PullParameters& p) : p_(p) {}

  /// Until gathered rows [first, last) are there.
  __device__ __forceinline__ void wait(int first, int last) {
    const int from = first >> p_.piece_log2, to = (last - 1) >> p_.piece_log2;
    const uint32_t needed = (~0u << from) & (~0u >> (kMostPieces - 1 - to));
    if ((needed & ~there_) == 0) return;
#pragma unroll 1
    for (int piece = from; piece <= to; ++piece) {
      wait_word<Scope::kDevice>(p_.arrived + piece, p_.units_of_piece[piece]);
    }
    fence_proxy();  // what TMA reads comes after the words
    there_ |= needed;
  }

 private:
  const PullParameters& p_;
  uint32_t there_ = 0;
};

}  // namespace longspan::hopper
