// The forward kernels above 256 columns.
#pragma once

#include "providers/hopper/forward/split_consumers.cuh"
#include "providers/hopper/forward/split_producer.cuh"

namespace longspan::hopper {

template <class C>
__device__ __forceinline__ void attend_split(const Parameters& p) {
  extern __shared__ char stages[];
  __shared__ alignas(8) uint64_t barriers[kSplitBarriers];
  __shared__ alignas(16) Tile tiles[kSplitTiles];
  __shared__ Announced parts[2];
  __shared__ float factors[2][C::kRows];
  __shared__ Weight weights[2][C::kRows];
  SplitShared sm = make_shared<C>(stages, barriers);
  sm.tiles = tiles;
  sm.parts = parts;
  sm.factors = factors;
  sm.weights = weights;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) init_barriers<C>(sm);
  __syncthreads();
  if (warpgroup == 2) {
    give_registers<C::kProducerRegisters>();
    SplitProducer<C>(p, sm, (threadIdx.x & 127) / 32, threadIdx.x & 31).run();
  } else if (warpgroup == 0) {
    take_registers<C::kLeftRegisters>();
    SplitLeft<C>(p, sm).run();
  } else {
    take_registers<C::kRightRegisters>();
    attend_right<C>(p, sm);
  }
}

}  // namespace longspan::hopper
