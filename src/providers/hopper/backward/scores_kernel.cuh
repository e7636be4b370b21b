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
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) init_barriers(sm);
  __syncthreads();
  admit_next();
  await_previous();
  if (warpgroup == 2) {
    give_registers<C::kProducerRegisters>();
    if ((threadIdx.x & 127) == 0) ScoreProducer<TERMS>(p, sm).run();
  } else {
    take_registers<C::kConsumerRegisters>();
    ScoreConsumer<T, TERMS>(p, sm, warpgroup).run();
  }
}

}  // namespace longspan::hopper
