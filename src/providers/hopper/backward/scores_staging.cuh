// A warpgroup's way from registers to scratch, for half of P or dS at a time: 64 queries x 128
// keys.
#pragma once

#include "providers/hopper/backward/scores_shared.cuh"
#include "providers/hopper/ptx/tma.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

class ScoreStaging {
 public:
  __device__ __forceinline__ ScoreStaging(const ScoreShared& sm, int group)
      : sm_(sm), group_(group) {}

  /// Waits until the half before has left.
  __device__ __forceinline__ void open() {
    place_ = opaque(sm_.staging) + group_ * ScoreConfig::kStagingBytes;
    if (leads_warpgroup()) tma_store_wait_read();
    named_barrier_sync(1 + group_, 128);
    base_ = place_ + ((threadIdx.x & 127) / 32 * 16 + (threadIdx.x & 15)) * 128;
  }
  /// Packed pairs of 16 keys, number `part` of eight: each row's of eight keys, then of the others.
  __device__ __forceinline__ void put(int part, uint32_t a, uint32_t b, uint32_t c,
                                      uint32_t d) const {
    const int lane = threadIdx.x & 31;
    const uint32_t chunk = (2 * (part & 3) + (lane >> 4)) ^ (lane & 7);
    store_matrices(base_ + part / 4 * kBlockBytes + (chunk << 4), a, b, c, d);
  }
  /// Sends the half to `to`.
  __device__ __forceinline__ void close(char* to) const {
    fence_async_proxy();
    named_barrier_sync(1 + group_, 128);
    if (!leads_warpgroup()) return;
    bulk_store(to, place_, 2 * kBlockBytes);
    tma_store_commit();
  }
  /// Waits until all has arrived.
  __device__ __forceinline__ void finish() const {
    if (leads_warpgroup()) tma_store_wait();
  }

 private:
  const ScoreShared& sm_;
  int group_;
  uint32_t place_ = 0, base_ = 0;
};

}  // namespace longspan::hopper
