#include "group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "communicators.h"
#include "numbers.h"

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

Tensor zeros(const Problem& problem, std::string_view name) {
  Tensor tensor = side_tensor(problem, name, DType::kF64);
  if (tensor.memory.size() > 0) std::memset(tensor.memory.data(), 0, tensor.memory.size());
  return tensor;
}

/// Adds a rank's dsink or dbias to the sum in float64, which `total` is rounded from.
void add_contribution(const Tensor& mine, const Tensor& sum, const Tensor& total) {
  if (mine.view.data == nullptr) return;
  const auto count = static_cast<int64_t>(sum.memory.size() / sizeof(double));
  auto* const sums = static_cast<double*>(sum.view.data);
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += load(mine.view.data, mine.view.dtype, i);
    store(total.view.data, total.view.dtype, i, sums[i]);
  }
}

Result<RankResults> run_thread(const GroupTask& task, const MakeRank& make_rank, size_t rank) {
  LONGSPAN_TRY(std::shared_ptr<Communicator> communicator, make_rank(rank));
  return run_rank({.inputs = task.inputs,
                   .options = task.options,
                   .communicator = std::move(communicator),
                   .device = task.devices.empty() ? task.device : task.devices[rank],
                   .plan = task.plan,
                   .repeat = task.repeat,
                   .fails = static_cast<int>(rank) == task.fail_rank});
}

}  // namespace

GroupResults make_group_results(const Problem& problem, bool forward_only) {
  const auto whole = [&](std::string_view name) {
    Tensor tensor = has_rows(name) ? whole_tensor(problem, tensor_spec(problem, name))
                                   : side_tensor(problem, name);
    poison(tensor);  // a row that no rank owns must show
    return tensor;
  };
  GroupResults results;
  static_cast<ResultTensors&>(results) = make_results(problem, forward_only, whole);
  if (results.dsink.view.data != nullptr) results.dsink_sum = zeros(problem, "dsink");
  if (results.dbias.view.data != nullptr) results.dbias_sum = zeros(problem, "dbias");
  return results;
}

void gather(const RankResults& shard, const Partition& partition, int rank, GroupResults& whole) {
  const Problem& problem = shard.call->problem();
  const std::vector<int64_t> q = partition.q_indices(problem, rank);
  const std::vector<int64_t> k = partition.k_indices(problem, rank);
  const std::vector<NamedConstResult> from = present(shard);
  const std::vector<NamedResult> to = present(whole);
  for (size_t i = 0; i < from.size(); ++i) {
    const std::string_view name = from[i].name;
    if (!has_rows(name)) continue;
    const bool queries = tensor_spec(problem, name).side == Side::kQuery;
    gather_rows(from[i].tensor->view, to[i].tensor->view, queries ? q : k);
  }
  add_contribution(shard.dsink, whole.dsink_sum, whole.dsink);
  add_contribution(shard.dbias, whole.dbias_sum, whole.dbias);
  const Memory& maxima = shard.max_logit.memory;
  if (maxima.size() == 0) return;
  if (rank == 0) std::memcpy(whole.max_logit.memory.data(), maxima.data(), maxima.size());
  if (std::memcmp(whole.max_logit.memory.data(), maxima.data(), maxima.size()) == 0) return;
  ++whole.unequal_max_logits;
}

Result<GroupResults> run_threads(const GroupTask& task) {
  LONGSPAN_TRY(
      const MakeRank make_rank,
      make_ranks({.name = task.communicator, .topology = task.topology, .devices = task.devices}));
  std::vector<std::optional<Result<RankResults>>> ranks(static_cast<size_t>(task.topology.ranks()));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back(
        [&task, &make_rank, &ranks, rank] { ranks[rank] = run_thread(task, make_rank, rank); });
  }
  for (std::thread& thread : threads) thread.join();
  if (const auto error = most_telling(ranks, task.fail_rank)) return *error;
  const std::shared_ptr<const Call>& call = ranks[0]->value().call;
  GroupResults results = make_group_results(task.inputs->problem, call->explanation().forward_only);
  results.call = call;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankResults& shard = ranks[rank]->value();
    gather(shard, results.call->partition(), static_cast<int>(rank), results);
    add_figures(shard, results);
  }
  return results;
}

}  // namespace longspan::tool
