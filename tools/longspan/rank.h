// One rank's part of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "inputs.h"
#include "longspan/engine.h"
#include "results.h"

namespace longspan::tool {

struct RankTask {
  const Inputs* inputs = nullptr;
  Options options;
  std::shared_ptr<Communicator> communicator;
  Device device;
  std::string plan;  // bytes to load; empty: the problem is prepared by options
  int repeat = 1;
  bool fails = false;  // stops once prepared; see --fail-rank
};

/// The rank's shards of all results (dsink and dbias: what it contributes), and what they took.
struct RankResults : ResultTensors {
  std::shared_ptr<const Call> call;
  int64_t bytes_forward = 0;  // sent to other ranks
  int64_t bytes_backward = 0;
  int64_t peak_bytes = 0;  // the larger workspace, and saved buffers that are no alias
  double prepare_seconds = 0;
  double forward_seconds = 0;  // fastest of the repeats
  double backward_seconds = 0;
  int64_t unequal_repeats = 0;  // repeats whose results differ from the first in any bit
};

/// Shards the inputs, runs forward and backward `repeat` times. All memory that must not be read
/// before it is written (padding rows, results, saved buffers, workspace) starts as NaN each time.
Result<RankResults> run_rank(const RankTask& task);

/// Tensors for the results of a call on one rank, contents arbitrary.
ResultTensors make_rank_results(const Call& call, int rank);

/// The error of a rank that stopped because of --fail-rank.
Error stopped_for_test(int rank);

}  // namespace longspan::tool
