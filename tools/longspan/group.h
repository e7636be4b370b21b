// All ranks of a run together: as threads of this process, or as processes under MPI.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "inputs.h"
#include "longspan/engine.h"
#include "rank.h"

namespace longspan::tool {

/// What a run computes and how, the same on every rank.
struct GroupTask {
  const Inputs* inputs = nullptr;
  Options options;
  Topology topology;
  std::string communicator = "threads";  // of ranks that are threads
  Device device;
  std::vector<Device> devices;  // of each rank where they are GPUs; else empty
  std::string plan;             // as in RankTask
  int repeat = 1;
  int fail_rank = -1;
};

/// Whole results in the problem's layout, and figures per rank.
struct GroupResults : ResultTensors {
  std::shared_ptr<const Call> call;  // of rank 0
  Tensor dsink_sum, dbias_sum;       // over the ranks gathered so far, float64
  int64_t unequal_max_logits = 0;    // ranks whose max_logit is not that of the first one gathered
  std::vector<int64_t> bytes_forward, bytes_backward, peak_bytes;
  double prepare_seconds = 0;  // of the slowest rank, and likewise below
  double forward_seconds = 0;
  double backward_seconds = 0;
  int64_t unequal_repeats = 0;
};

/// Ranks as threads. The error is that of the rank that noticed most, and names it.
Result<GroupResults> run_threads(const GroupTask& task);

/// This process as one rank; rank 0 gets whole results, the others empty tensors. Collective over
/// `host`; NCCL moves what ranks on GPUs exchange.
Result<GroupResults> run_mpi(const GroupTask& task, const std::shared_ptr<Communicator>& host);

/// Tensors of all rows, for gathering into.
GroupResults make_group_results(const Problem& problem, bool forward_only = false);
/// Copies one rank's rows into the whole tensors, adds its dsink and dbias, compares its max_logit.
/// Ranks are gathered in their order.
void gather(const RankResults& shard, const Partition& partition, int rank, GroupResults& whole);

}  // namespace longspan::tool
