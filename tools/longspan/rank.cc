#include "rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "shards.h"

namespace longspan::tool {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Exchange memory of the communicator's, released with this.
class Arena {
 public:
  static Result<Arena> make(std::shared_ptr<Communicator> communicator, size_t bytes) {
    Arena arena;
    if (bytes == 0) return arena;
    LONGSPAN_TRY(arena.workspace_.data, communicator->allocate(bytes));
    arena.workspace_.bytes = bytes;
    arena.communicator_ = std::move(communicator);
    return arena;
  }
  Arena(Arena&& other) noexcept
      : communicator_(std::move(other.communicator_)),
        workspace_(std::exchange(other.workspace_, {})) {}
  Arena& operator=(Arena&&) = delete;
  ~Arena() {
    if (workspace_.data != nullptr) communicator_->release(workspace_.data);
  }
  Workspace workspace() const { return workspace_; }

 private:
  Arena() = default;
  std::shared_ptr<Communicator> communicator_;
  Workspace workspace_;
};

std::vector<Memory> make_saved(const Call& call) {
  std::vector<Memory> saved;
  for (const BufferSpec& buffer : call.saved_layout()) {
    if (!buffer.alias.empty()) continue;
    int64_t bytes = size_of(buffer.dtype);
    for (const int64_t extent : buffer.shape) bytes *= extent;
    saved.emplace_back(static_cast<size_t>(bytes));
  }
  return saved;
}

void poison(const Memory& memory) {
  if (memory.size() > 0) std::memset(memory.data(), 0xff, memory.size());
}

/// Everything that a run reads and writes besides its inputs.
struct Buffers {
  std::vector<Memory> saved;
  Workspace workspace;

  Saved pointers() const {
    Saved pointers;
    for (const Memory& memory : saved) pointers.push_back(memory.data());
    return pointers;
  }
  void poison_workspace() const {
    if (workspace.bytes > 0) std::memset(workspace.data, 0xff, workspace.bytes);
  }
  int64_t bytes() const {
    size_t total = workspace.bytes;
    for (const Memory& memory : saved) total += memory.size();
    return static_cast<int64_t>(total);
  }
};

void poison_all(const Buffers& buffers, const RankResults& results) {
  for (const Memory& memory : buffers.saved) poison(memory);
  buffers.poison_workspace();
  for (const auto& [name, tensor] : present(results)) tool::poison(*tensor);
}

Status run_forward(Engine& engine, const ShardInputs& in, const Buffers& buffers,
                   RankResults& results) {
  const Call& call = *results.call;
  const ForwardOperands operands{.q = in.q,
                                 .k = in.k,
                                 .v = in.v,
                                 .o = results.o.view,
                                 .lse = results.lse.view,
                                 .scale = call.problem().scale,
                                 .side = in.side,
                                 .max_logit = results.max_logit.view};
  longspan::Stream stream;
  const auto begin = Clock::now();
  LONGSPAN_CHECK_OK(engine.forward(call, operands, buffers.pointers(), buffers.workspace, stream));
  results.forward_seconds = std::min(results.forward_seconds, seconds_since(begin));
  return {};
}

Status run_backward(Engine& engine, const ShardInputs& in, const Buffers& buffers,
                    RankResults& results) {
  const Call& call = *results.call;
  const BackwardOperands operands{.q = in.q,
                                  .k = in.k,
                                  .v = in.v,
                                  .o = results.o.view,
                                  .lse = results.lse.view,
                                  .dout = in.dout,
                                  .dq = results.dq.view,
                                  .dk = results.dk.view,
                                  .dv = results.dv.view,
                                  .scale = call.problem().scale,
                                  .side = in.side,
                                  .dsink = results.dsink.view,
                                  .dbias = results.dbias.view};
  longspan::Stream stream;
  const auto begin = Clock::now();
  LONGSPAN_CHECK_OK(engine.backward(call, operands, buffers.pointers(), buffers.workspace, stream));
  results.backward_seconds = std::min(results.backward_seconds, seconds_since(begin));
  return {};
}

Status run_once(Engine& engine, const ShardInputs& inputs, const Buffers& buffers,
                RankResults& results) {
  LONGSPAN_CHECK_OK(run_forward(engine, inputs, buffers, results));
  if (results.call->explanation().forward_only) return {};
  buffers.poison_workspace();  // it carries nothing from forward to backward
  return run_backward(engine, inputs, buffers, results);
}

std::vector<std::byte> bytes_of(const RankResults& results) {
  std::vector<std::byte> bytes;
  for (const auto& [name, tensor] : present(results)) {
    bytes.insert(bytes.end(), tensor->memory.data(), tensor->memory.data() + tensor->memory.size());
  }
  return bytes;
}

Status run_repeats(const RankTask& task, Engine& engine, const ShardInputs& inputs,
                   const Buffers& buffers, RankResults& results) {
  std::vector<std::byte> first;
  for (int repeat = 0; repeat < task.repeat; ++repeat) {
    poison_all(buffers, results);
    LONGSPAN_CHECK_OK(run_once(engine, inputs, buffers, results));
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
  const size_t workspace = std::max(call->workspace_bytes(Direction::kForward),
                                    call->workspace_bytes(Direction::kBackward));
  LONGSPAN_TRY(const Arena arena, Arena::make(task.communicator, workspace));
  const ShardInputs inputs = shard_inputs(*task.inputs, call->partition(), rank);
  RankResults results;
  static_cast<ResultTensors&>(results) = make_rank_results(*call, rank);
  results.call = std::move(call);
  const Buffers buffers{make_saved(*results.call), arena.workspace()};
  results.peak_bytes = buffers.bytes();
  results.forward_seconds = std::numeric_limits<double>::max();
  results.backward_seconds = std::numeric_limits<double>::max();
  LONGSPAN_CHECK_OK(run_repeats(task, engine, inputs, buffers, results));
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
  LONGSPAN_TRY(auto call, engine->prepare(task.inputs->problem));
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
