#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <utility>

#include "group.h"

namespace longspan::tool {
namespace {

/// Far below what a message of any MPI can hold.
constexpr size_t kLargestMessage = size_t{1} << 28;

Status transfer_all(Communicator& communicator, TransferKind kind, int peer, const Memory& memory,
                    std::chrono::milliseconds deadline) {
  for (size_t begin = 0; begin < memory.size(); begin += kLargestMessage) {
    const Transfer transfer{.kind = kind,
                            .peer = peer,
                            .tag = 0,
                            .data = memory.data() + begin,
                            .bytes = std::min(kLargestMessage, memory.size() - begin)};
    LONGSPAN_TRY(const Request request, communicator.start({&transfer, 1}));
    LONGSPAN_CHECK_OK(communicator.wait(request, deadline));
  }
  return {};
}

/// Another rank's results, as they arrive on rank 0.
Result<RankResults> receive(const GroupTask& task, Communicator& communicator,
                            const std::shared_ptr<const Call>& call, int rank) {
  RankResults results;
  results.call = call;
  static_cast<ResultTensors&>(results) = make_rank_results(*call, rank);
  for (const NamedResult& result : present(results)) {
    LONGSPAN_CHECK_OK(transfer_all(communicator, TransferKind::kRecv, rank, result.tensor->memory,
                                   task.options.deadline));
  }
  return results;
}

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

Status add_figures(const GroupTask& task, Communicator& communicator, const RankResults& mine,
                   GroupResults& group) {
  const std::array<uint64_t, 7> words = {static_cast<uint64_t>(mine.bytes_forward),
                                         static_cast<uint64_t>(mine.bytes_backward),
                                         static_cast<uint64_t>(mine.peak_bytes),
                                         static_cast<uint64_t>(mine.unequal_repeats),
                                         bits(mine.prepare_seconds),
                                         bits(mine.forward_seconds),
                                         bits(mine.backward_seconds)};
  LONGSPAN_TRY(const std::vector<uint64_t> all,
               exchange_words(communicator, words, task.options.deadline));
  for (size_t at = 0; at < all.size(); at += words.size()) {
    group.bytes_forward.push_back(static_cast<int64_t>(all[at]));
    group.bytes_backward.push_back(static_cast<int64_t>(all[at + 1]));
    group.peak_bytes.push_back(static_cast<int64_t>(all[at + 2]));
    group.unequal_repeats += static_cast<int64_t>(all[at + 3]);
    group.prepare_seconds = std::max(group.prepare_seconds, std::bit_cast<double>(all[at + 4]));
    group.forward_seconds = std::max(group.forward_seconds, std::bit_cast<double>(all[at + 5]));
    group.backward_seconds = std::max(group.backward_seconds, std::bit_cast<double>(all[at + 6]));
  }
  return {};
}

}  // namespace

Result<GroupResults> run_mpi(const GroupTask& task, const std::shared_ptr<Communicator>& host) {
  std::shared_ptr<Communicator> communicator = host;
  if (task.device.is_cuda()) {
    const NcclSettings settings{.deadline = task.options.deadline};
    LONGSPAN_TRY(communicator, make_nccl_communicator(host, task.device, settings));
  }
  const int rank = communicator->rank();
  const bool fails = rank == task.fail_rank;
  auto outcome = run_rank({.inputs = task.inputs,
                           .options = task.options,
                           .communicator = communicator,
                           .device = task.device,
                           .plan = task.plan,
                           .repeat = task.repeat,
                           .fails = fails});
  if (fails) std::raise(SIGKILL);  // what a crash looks like to the others
  LONGSPAN_TRY(RankResults mine, std::move(outcome));
  GroupResults results;
  if (rank == 0) {
    results = make_group_results(task.inputs->problem, mine.call->explanation().forward_only);
  }
  results.call = mine.call;
  LONGSPAN_CHECK_OK(add_figures(task, *communicator, mine, results));
  if (rank != 0) {
    for (const NamedResult& result : present(mine)) {
      LONGSPAN_CHECK_OK(transfer_all(*communicator, TransferKind::kSend, 0, result.tensor->memory,
                                     task.options.deadline));
    }
    return results;
  }
  gather(mine, mine.call->partition(), 0, results);
  for (int other = 1; other < communicator->size(); ++other) {
    LONGSPAN_TRY(const RankResults shard, receive(task, *communicator, mine.call, other));
    gather(shard, mine.call->partition(), other, results);
  }
  return results;
}

}  // namespace longspan::tool
