#include "bench_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "communicators.h"
#include "progress.h"
#include "reference.h"

namespace longspan::tool {
namespace {

Status guarded(const std::function<Status(size_t)>& body, size_t rank) {
  try {
    return body(rank);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory,
                 "no memory for shards and workspace; use more ranks or fewer tokens", "bench"};
  }
}

/// Runs `body(rank)` of all ranks at once. The error is that of a rank that knows the cause: a lost
/// peer is mostly the echo of another's failure.
Status on_all_ranks(size_t ranks, const std::function<Status(size_t)>& body) {
  std::vector<Status> outcomes(ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 1; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = guarded(body, rank); });
  }
  outcomes[0] = guarded(body, 0);
  for (std::thread& thread : threads) thread.join();
  std::optional<Error> chosen;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (outcomes[rank].ok()) continue;
    Error error = outcomes[rank].error();
    error.message = fmt::format("rank {}: {}", rank, error.message);
    if (!chosen || chosen->code == ErrorCode::kPeerLost) chosen = std::move(error);
  }
  if (chosen) return *chosen;
  return {};
}

std::vector<double> larger(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out(a.size());
  std::transform(a.begin(), a.end(), b.begin(), out.begin(),
                 [](double x, double y) { return std::max(x, y); });
  return out;
}

}  // namespace

bool BenchCheck::pass() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.pass(); });
}

Slice slower(const Slice& a, const Slice& b) {
  return {.forward = larger(a.forward, b.forward),
          .backward = larger(a.backward, b.backward),
          .host_forward = larger(a.host_forward, b.host_forward),
          .host_backward = larger(a.host_backward, b.host_backward),
          .wall = std::max(a.wall, b.wall)};
}

Result<std::unique_ptr<BenchGroup>> BenchGroup::prepare(const GroupTask& task) {
  std::unique_ptr<BenchGroup> group(new BenchGroup(task.device));
  LONGSPAN_TRY(
      const MakeRank make_rank,
      make_ranks({.name = task.communicator, .topology = task.topology, .devices = task.devices}));
  const auto ranks = static_cast<size_t>(task.topology.ranks());
  group->ranks_.resize(ranks);
  LONGSPAN_CHECK_OK(on_all_ranks(ranks, [&](size_t rank) -> Status {
    LONGSPAN_TRY(auto communicator, make_rank(rank));
    LONGSPAN_TRY(
        group->ranks_[rank],
        BenchRank::make({.inputs = task.inputs,
                         .options = task.options,
                         .communicator = std::move(communicator),
                         .device = task.devices.empty() ? task.device : task.devices[rank]}));
    return {};
  }));
  return group;
}

Status BenchGroup::record() {
  LONGSPAN_TRY(const Slice first, run({.warmup = 1}));  // what is loaded at a first call is there
  return on_all_ranks(ranks_.size(), [&](size_t rank) { return ranks_[rank]->record(); });
}

Result<std::unique_ptr<BenchGroup>> BenchGroup::make(const GroupTask& task, bool graphs) {
  LONGSPAN_TRY(std::unique_ptr<BenchGroup> group, prepare(task));
  if (!graphs) return group;
  const Status recorded = group->record();
  if (recorded.ok()) {
    group->recorded_ = true;
    group->graph_reason_.clear();
    return group;
  }
  group.reset();  // its communicators may be in the middle of something
  LONGSPAN_TRY(group, prepare(task));
  group->graph_reason_ = recorded.error().text();
  return group;
}

Result<Slice> BenchGroup::run(const SliceTask& task) {
  std::vector<Slice> slices(ranks_.size());
  LONGSPAN_CHECK_OK(on_all_ranks(ranks_.size(), [&](size_t rank) -> Status {
    LONGSPAN_TRY(slices[rank], ranks_[rank]->run(task));
    return {};
  }));
  Slice slowest = slices.front();
  for (const Slice& slice : slices) slowest = slower(slowest, slice);
  return slowest;
}

Result<BenchCheck> BenchGroup::check(const Inputs& inputs) {
  for (const auto& rank : ranks_) LONGSPAN_CHECK_OK(rank->poison());
  LONGSPAN_TRY(const Slice once, run({}));
  const bool forward_only = call().explanation().forward_only;
  GroupResults results = make_group_results(inputs.problem, forward_only);
  results.call = ranks_.front()->results().call;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    LONGSPAN_CHECK_OK(ranks_[rank]->download());
    gather(ranks_[rank]->results(), call().partition(), static_cast<int>(rank), results);
  }
  Progress progress(false);
  LONGSPAN_TRY(const Reference reference,
               compute_reference(inputs, device_, progress, forward_only));
  BenchCheck check{.measures = measure_all(inputs, results, reference)};
  const Bars limits =
      bars(inputs.problem.dtype, largest_finite(reference.lse.view), device_.is_cuda());
  check.checks = check_measures(check.measures, limits);
  check.checks.push_back(check_padding(inputs.problem, results));
  return check;
}

}  // namespace longspan::tool
