// P and dS of a chunk, to scratch.
#pragma once

#include "providers/hopper/backward/scores_consumer.cuh"
#include "providers/hopper/backward/scores_producer.cuh"
#include "providers/hopper/ptx/dependency.cuh"

namespace longspan::hopper {

/// TERMS: scores have terms.
template <class T, bool TERMS>
__device__ __forceinline__ void recompute(const ScoreParameters& p) {
  using C = ScoreConfig;
  extern __shared__ char stages[];
  __shared__ alignas(8) uint64_t barriers[kScoreBarriers];
  __shared__ alignas(16) ScoreUnit units[C::kUnits];
  __shared__ alignas(16) char tokens[TERMS ? C::kUnits * sizeof(Tokens) : 16];
  const ScoreShared sm =
      make_score_shared(stages, barriers, units, reinterpret_cast<Tokens*>(tokens));
  // NOTE: through a shuffle, so that descriptors stay in uniform registers.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), t = threadIdx.x & 127;
  if (threadIdx.x == 0) init_barriers(sm);
  __syncthreads();
  admit_next();
  if (warpgroup == 2) {
    give_registers<C::kProducerRegisters>();
    // What these two read is older than the kernel before, which only scratch has to wait for.
    if (t == 0) ScoreLoader(p, sm).run();
    if (t == 32) ScoreAnnouncer<TERMS>(p, sm).run();
  } else {
    await_previous();
    take_registers<C::kConsumerRegisters>();
    ScoreConsumer<T, TERMS>(p, sm, warpgroup).run();
  }
}

}  // namespace longspan::hopper
