// dQ, dK and dV of a chunk, from P and dS in scratch.
#pragma once

#include "providers/hopper/backward/gradients_announcer.cuh"
#include "providers/hopper/backward/gradients_consumer.cuh"
#include "providers/hopper/backward/gradients_loader.cuh"
#include "providers/hopper/ptx/dependency.cuh"

namespace longspan::hopper {

template <class C>
__device__ __forceinline__ void sum_gradients(const GradientParameters& p) {
  extern __shared__ char stages[];
  __shared__ alignas(8) uint64_t barriers[C::kBarriers];
  __shared__ alignas(16) GradientTile tiles[C::kTiles];
  __shared__ Surplus surplus;
  const GradientShared sm = make_gradient_shared<C>(stages, barriers, tiles, &surplus);
  // NOTE: through a shuffle, so that descriptors stay in uniform registers.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), t = threadIdx.x & 127;
  if (threadIdx.x == 0) init_barriers<C>(sm);
  __syncthreads();
  admit_next();
  if (warpgroup == 2) {
    give_registers<C::kProducerRegisters>();
    if (t == 0) {
      await_previous();
      GradientLoader<C>(p, sm).run();
    }
    if (t / 32 == 1) clear_surplus<C>(sm, t & 31);
    if (t == 64) GradientAnnouncer<C>(p, sm).run();
  } else {
    await_previous();
    take_registers<C::kConsumerRegisters>();
    GradientConsumer<C>(p, sm, warpgroup).run();
  }
}

}  // namespace longspan::hopper
