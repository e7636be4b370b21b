// The forward kernel up to 256 columns: consumer warpgroups and one that loads and stores.
#pragma once

#include "providers/hopper/forward/carry.cuh"
#include "providers/hopper/forward/config.h"
#include "providers/hopper/forward/consumer.cuh"
#include "providers/hopper/forward/producer.cuh"

namespace longspan::hopper {

/// Stores the O that warpgroups have staged in Q buffers, and frees the buffers. One warp.
template <class C>
__device__ __forceinline__ void store_results(const Parameters& p, const Shared& sm, int lane) {
  for (int number = 0;; ++number) {
    const int buffer = buffer_of<C>(number);
    mbarrier_wait(sm.q_full + buffer * 8, phase_of<C>(number));
    volatile Tile& tile = sm.tiles[number & 1];
    const int first = tile.first;
    if (first < 0) break;
    mbarrier_wait(sm.o_full + buffer * 8, phase_of<C>(number));
    if constexpr (!C::kMerges) {
      const int row = tile.q_row + first, head = tile.head, queries = tile.queries - first;
      const int most = queries_of_warpgroup<C>(p);
#pragma unroll 1
      for (int g = 0; g < C::kGroups && g * most < queries; ++g) {
        const uint32_t from = sm.q + buffer * C::kQBytes + g * C::kQGroupBytes;
        Coordinates c = coordinates_of(p.o, row + g * most, head);
        if (!p.stores_by_tma || queries - g * most < most || c.row + most > p.o.rows) {
          copy_staged<C>(p, from, row + g * most, head, min(queries - g * most, most), lane);
          continue;
        }
        if (lane != 0) continue;
#pragma unroll 1
        for (int i = 0; i < C::kColumnBlocksV; i += p.o.box_blocks, c.x += 64) {
          tma_store(&p.o.map, from + i * 8192, c);
        }
      }
      if (lane == 0) {
        tma_store_commit();
        tma_store_wait_read();
      }
      __syncwarp();
    }
    if (lane == 0) mbarrier_arrive(sm.q_empty + buffer * 8);
  }
  tma_store_wait();
}

/// Brings the carry of tile after tile to L2 when the producer says so. One warp; the producer
/// fills no Q buffer, and announces no tile in its place, before this warp is done with its tile.
template <class C>
__device__ __forceinline__ void prefetch_carries(const Parameters& p, const Shared& sm, int lane) {
  for (int number = 0;; ++number) {
    const int buffer = buffer_of<C>(number);
    mbarrier_wait(sm.carry_due + buffer * 8, phase_of<C>(number));
    volatile Tile& tile = sm.tiles[number & 1];
    if (tile.first < 0) return;
    prefetch_carry<C::kRows>(p, tile, lane);
    __syncwarp();
    if (lane == 0) mbarrier_arrive(sm.q_empty + buffer * 8);
  }
}

/// What the warps of the producer warpgroup do; `t` counts its threads.
template <class C>
__device__ __forceinline__ void produce(const Parameters& p, const Shared& sm, int t) {
  if (C::kAnnounces && t == 96) return announce_tiles<C>(p, sm);
  if (t == 0) Producer<C>(p, sm).run();
  if (t / 32 == 1 && !C::kDirect) store_results<C>(p, sm, t & 31);
  if (t / 32 == 2) clear_tails<C>(sm, t & 31);
  if (t / 32 == 3 && C::kMerges) prefetch_carries<C>(p, sm, t & 31);
}

template <class C>
__device__ __forceinline__ void attend(const Parameters& p) {
  extern __shared__ char stages[];
  __shared__ alignas(8)
      uint64_t barriers[kBarriers + (C::kMerges || C::kAnnounces ? kMoreBarriers : 0)];
  __shared__ alignas(16) Tile tiles[2];
  __shared__ Tail tail;
  __shared__ int first_blocks[C::kTurns ? 2 : 1];
  Shared sm = make_shared<C>(stages, barriers, tiles, &tail);
  if (C::kTurns) sm.first_blocks = first_blocks;
  // NOTE: through a shuffle, so that descriptors stay in uniform registers.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) init_barriers<C>(sm);
  __syncthreads();
  if (warpgroup == C::kGroups) {
    give_registers<C::kProducerRegisters>();
    produce<C>(p, sm, threadIdx.x & 127);
  } else {
    take_registers<C::kConsumerRegisters>();
    Consumer<C>(p, sm, warpgroup).run();
  }
}

/// As attend(), and a warp pulls keys and values meanwhile.
template <class C>
__device__ __forceinline__ void attend_pulling(const PullParameters& p) {
  extern __shared__ char stages[];
  __shared__ alignas(8) uint64_t barriers[kBarriers + C::kPullParts];
  __shared__ alignas(16) Tile tiles[2];
  __shared__ Tail tail;
  __shared__ int first_blocks[2];
  Shared sm = make_shared<C>(stages, barriers, tiles, &tail);
  sm.first_blocks = first_blocks;
  const PullShared pull{.parts = sm.q + C::kStagesBytes,
                        .full = shared_address(barriers + kBarriers)};
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), t = threadIdx.x & 127;
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kPullParts; ++i) mbarrier_init(pull.full + i * 8, 1);
    init_barriers<C>(sm);
  }
  __syncthreads();
  if (warpgroup == C::kGroups) {
    give_registers<C::kProducerRegisters>();
    produce<C>(p, sm, t);
    const bool speaks = blockIdx.x == 0 && t == 96;
    if (speaks) admit_borrowers(p);
    if constexpr (C::kPartBytes > 0) {
      if (t == 96) Puller<C>(p, pull).run();
    } else {
      static_assert(C::kDirect, "no warp is spare that could store results");
      if (t / 32 == 1 || t / 32 == 3) pull_by_warps<C>(p, t / 64, t & 31);
    }
    if (speaks) await_borrowers(p);
  } else {
    take_registers<C::kConsumerRegisters>();
    Consumer<C>(p, sm, warpgroup).run();
  }
}

}  // namespace longspan::hopper
