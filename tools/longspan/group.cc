#include "group.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

namespace longspan::tool {
namespace {

/// How much an error says about its cause: a lost peer is mostly the echo of another's failure.
int weight(const Error& error, bool stopped) {
  if (stopped) return 0;
  return error.code == ErrorCode::kPeerLost ? 1 : 2;
}

std::optional<Error> most_telling(const std::vector<std::optional<Result<RankResults>>>& ranks,
                                  int fail_rank) {
  std::optional<Error> chosen;
  int best = -1;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank]->ok()) continue;
    Error error = ranks[rank]->error();
    const int candidate = weight(error, static_cast<int>(rank) == fail_rank);
    if (candidate <= best) continue;
    best = candidate;
    error.message = fmt::format("rank {}: {}", rank, error.message);
    chosen = std::move(error);
  }
  return chosen;
}

void add_figures(const RankResults& rank, GroupResults& group) {
  group.bytes_forward.push_back(rank.bytes_forward);
  group.bytes_backward.push_back(rank.bytes_backward);
  group.peak_bytes.push_back(rank.peak_bytes);
  group.prepare_seconds = std::max(group.prepare_seconds, rank.prepare_seconds);
  group.forward_seconds = std::max(group.forward_seconds, rank.forward_seconds);
  group.backward_seconds = std::max(group.backward_seconds, rank.backward_seconds);
  group.unequal_repeats += rank.unequal_repeats;
}

}  // namespace

GroupResults make_group_results(const Problem& problem) {
  GroupResults results;
  const auto tensor = [&](const char* name) {
    return whole_tensor(problem, tensor_spec(problem, name));
  };
  results.o = tensor("o");
  results.lse = tensor("lse");
  results.dq = tensor("dq");
  results.dk = tensor("dk");
  results.dv = tensor("dv");
  for (const Tensor* whole : {&results.o, &results.lse, &results.dq, &results.dk, &results.dv}) {
    poison(*whole);  // a row that no rank owns must show
  }
  return results;
}

void gather(const RankResults& shard, const Partition& partition, int rank, GroupResults& whole) {
  const Problem& problem = shard.call->problem();
  const std::vector<int64_t> q = partition.q_indices(problem, rank);
  const std::vector<int64_t> k = partition.k_indices(problem, rank);
  gather_rows(shard.o.view, whole.o.view, q);
  gather_rows(shard.lse.view, whole.lse.view, q);
  gather_rows(shard.dq.view, whole.dq.view, q);
  gather_rows(shard.dk.view, whole.dk.view, k);
  gather_rows(shard.dv.view, whole.dv.view, k);
}

Result<GroupResults> run_threads(const GroupTask& task) {
  const auto communicators = make_threads_communicators(task.topology);
  std::vector<std::optional<Result<RankResults>>> ranks(communicators.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&task, &communicators, &ranks, rank] {
      ranks[rank] = run_rank({.inputs = task.inputs,
                              .options = task.options,
                              .communicator = communicators[rank],
                              .device = task.device,
                              .repeat = task.repeat,
                              .fails = static_cast<int>(rank) == task.fail_rank});
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (const auto error = most_telling(ranks, task.fail_rank)) return *error;
  GroupResults results = make_group_results(task.inputs->problem);
  results.call = ranks[0]->value().call;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankResults& shard = ranks[rank]->value();
    gather(shard, results.call->partition(), static_cast<int>(rank), results);
    add_figures(shard, results);
  }
  return results;
}

}  // namespace longspan::tool
