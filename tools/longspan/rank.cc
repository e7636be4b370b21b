#include "rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "shards.h"
#include "workbench.h"

namespace longspan::tool {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Status poison_all(const Workbench& bench, const RankResults& results) {
  LONGSPAN_CHECK_OK(bench.poison_saved());
  LONGSPAN_CHECK_OK(bench.poison_workspace());
  for (const auto& [name, tensor] : present(results)) tool::poison(*tensor);
  return bench.mirror.upload();
}

/// Seconds until the device is done with what `queue` queues.
template <class Queue>
Result<double> timed(const Workbench& bench, Queue&& queue) {
  longspan::Stream stream;
  const auto begin = Clock::now();
  LONGSPAN_CHECK_OK(queue(stream));
  LONGSPAN_CHECK_OK(synchronize(bench.device, stream));
  return seconds_since(begin);
}

Status run_once(Engine& engine, const Workbench& bench, RankResults& results) {
  const Call& call = *results.call;
  LONGSPAN_TRY(const double forward, timed(bench, [&](longspan::Stream& stream) {
                 return engine.forward(call, bench.forward, bench.saved, bench.workspace, stream);
               }));
  results.forward_seconds = std::min(results.forward_seconds, forward);
  if (call.explanation().forward_only) return bench.mirror.download();
  LONGSPAN_CHECK_OK(bench.poison_workspace());  // it carries nothing from forward to backward
  LONGSPAN_TRY(const double backward, timed(bench, [&](longspan::Stream& stream) {
                 return engine.backward(call, bench.backward, bench.saved, bench.workspace, stream);
               }));
  results.backward_seconds = std::min(results.backward_seconds, backward);
  return bench.mirror.download();
}

std::vector<std::byte> bytes_of(const RankResults& results) {
  std::vector<std::byte> bytes;
  for (const auto& [name, tensor] : present(results)) {
    bytes.insert(bytes.end(), tensor->memory.data(), tensor->memory.data() + tensor->memory.size());
  }
  return bytes;
}

Status run_repeats(const RankTask& task, Engine& engine, const Workbench& bench,
                   RankResults& results) {
  std::vector<std::byte> first;
  for (int repeat = 0; repeat < task.repeat; ++repeat) {
    LONGSPAN_CHECK_OK(poison_all(bench, results));
    LONGSPAN_CHECK_OK(run_once(engine, bench, results));
    if (task.repeat == 1) continue;
    std::vector<std::byte> bytes = bytes_of(results);
    if (repeat == 0) {
      first = std::move(bytes);
    } else if (bytes != first) {
      ++results.unequal_repeats;
    }
  }
  return {};
}

Result<RankResults> run_prepared(const RankTask& task, Engine& engine,
                                 std::shared_ptr<const Call> call) {
  const int rank = task.communicator->rank();
  const ShardInputs inputs = shard_inputs(*task.inputs, call->partition(), rank);
  RankResults results;
  static_cast<ResultTensors&>(results) = make_rank_results(*call, rank);
  results.call = std::move(call);
  Workbench bench(task.device, task.communicator);
  LONGSPAN_CHECK_OK(bench.set_up(*results.call, inputs, results));
  results.peak_bytes = bench.bytes();
  results.forward_seconds = std::numeric_limits<double>::max();
  results.backward_seconds = std::numeric_limits<double>::max();
  LONGSPAN_CHECK_OK(run_repeats(task, engine, bench, results));
  results.bytes_forward = engine.counters().bytes_sent_forward;
  results.bytes_backward = engine.counters().bytes_sent_backward;
  return results;
}

}  // namespace

ResultTensors make_rank_results(const Call& call, int rank) {
  const Problem& problem = call.problem();
  const Partition& partition = call.partition();
  return make_results(problem, call.explanation().forward_only, [&](std::string_view name) {
    if (!has_rows(name)) return side_tensor(problem, name);
    const TensorSpec spec = tensor_spec(problem, name);
    return shard_tensor(problem, spec,
                        spec.side == Side::kQuery ? partition.q(rank) : partition.k(rank));
  });
}

Error stopped_for_test(int rank) {
  return {ErrorCode::kInternal, fmt::format("rank {} stopped, as --fail-rank asked", rank), "run"};
}

Result<RankResults> run_rank(const RankTask& task) {
  LONGSPAN_TRY(const auto engine, Engine::create(task.options, task.communicator, task.device));
  const auto begin = Clock::now();
  LONGSPAN_TRY(auto call, task.plan.empty() ? engine->prepare(task.inputs->declared())
                                            : engine->load(task.plan));
  const double prepare_seconds = seconds_since(begin);
  if (task.fails) return stopped_for_test(task.communicator->rank());
  try {
    LONGSPAN_TRY(RankResults results, run_prepared(task, *engine, std::move(call)));
    results.prepare_seconds = prepare_seconds;
    return results;
  } catch (const std::bad_alloc&) {
    const Error error{
        ErrorCode::kOutOfMemory,
        fmt::format("rank {} has no memory for its shards and workspace; use more ranks or "
                    "fewer tokens",
                    task.communicator->rank()),
        "run"};
    task.communicator->abandon(error);
    return error;
  }
}

}  // namespace longspan::tool
