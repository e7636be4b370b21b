// dV of a chunk, and its dS to scratch.
#pragma once

#include "providers/hopper/backward/values_announcer.cuh"
#include "providers/hopper/backward/values_consumer.cuh"
#include "providers/hopper/backward/values_loader.cuh"
#include "providers/hopper/ptx/dependency.cuh"

namespace longspan::hopper {

template <class C>
__device__ __forceinline__ void sum_values(const ValueParameters& p) {
  extern __shared__ __align__(1024) char memory[];
  const ValueShared sm = make_value_shared(*reinterpret_cast<ValueMemory<C>*>(memory));
  // NOTE: through a shuffle, so that descriptors stay in uniform registers.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), t = threadIdx.x & 127;
  if (threadIdx.x == 0) {
    if ((sm.keys & 1023) != 0) asm volatile("trap;");
    init_barriers<C>(sm);
  }
  __syncthreads();
  admit_next();
  await_previous();
  if (warpgroup == 2) {
    give_registers<C::kProducerRegisters>();
    if (t == 0) ValueLoader<C>(p, sm).run();
    if (t / 32 == 1) ValueReader<C>(p, sm, t & 31).run();
    if (t == 64) ValueAnnouncer<C>(p, sm).run();
  } else {
    take_registers<C::kConsumerRegisters>();
    ValueConsumer<C>(p, sm, warpgroup).run();
  }
}

}  // namespace longspan::hopper
