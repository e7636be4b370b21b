#include "rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

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

struct ShardInputs {
  Tensor q, k, v, dout;
};

Tensor shard_of(const Tensor& whole, const Problem& problem, const char* name, const Shard& shard,
                const std::vector<int64_t>& indices) {
  Tensor tensor = shard_tensor(problem, tensor_spec(problem, name), shard);
  scatter_rows(whole.view, tensor.view, indices);
  poison_padding(tensor, shard);
  return tensor;
}

ShardInputs shard_inputs(const Inputs& inputs, const Partition& partition, int rank) {
  const Problem& problem = inputs.problem;
  const std::vector<int64_t> q = partition.q_indices(problem, rank);
  const std::vector<int64_t> k = partition.k_indices(problem, rank);
  return {shard_of(inputs.q, problem, "q", partition.q(rank), q),
          shard_of(inputs.k, problem, "k", partition.k(rank), k),
          shard_of(inputs.v, problem, "v", partition.k(rank), k),
          shard_of(inputs.dout, problem, "dout", partition.q(rank), q)};
}

RankResults make_results(std::shared_ptr<const Call> call, int rank) {
  const Problem& problem = call->problem();
  const auto tensor = [&](const char* name) {
    const TensorSpec spec = tensor_spec(problem, name);
    const Partition& partition = call->partition();
    return shard_tensor(problem, spec,
                        spec.side == Side::kQuery ? partition.q(rank) : partition.k(rank));
  };
  RankResults results;
  results.o = tensor("o");
  results.lse = tensor("lse");
  results.dq = tensor("dq");
  results.dk = tensor("dk");
  results.dv = tensor("dv");
  results.call = std::move(call);
  return results;
}

std::array<const Tensor*, 5> tensors_of(const RankResults& results) {
  return {&results.o, &results.lse, &results.dq, &results.dk, &results.dv};
}

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
  int64_t bytes() const {
    size_t total = workspace.bytes;
    for (const Memory& memory : saved) total += memory.size();
    return static_cast<int64_t>(total);
  }
};

void poison_all(const Buffers& buffers, const RankResults& results) {
  for (const Memory& memory : buffers.saved) poison(memory);
  if (buffers.workspace.bytes > 0) {
    std::memset(buffers.workspace.data, 0xff, buffers.workspace.bytes);
  }
  for (const Tensor* tensor : tensors_of(results)) tool::poison(*tensor);
}

Status run_once(Engine& engine, const ShardInputs& in, const Buffers& buffers,
                RankResults& results) {
  const Call& call = *results.call;
  const double scale = call.problem().scale;
  const Saved saved = buffers.pointers();
  longspan::Stream stream;
  const ForwardOperands ahead{.q = in.q.view,
                              .k = in.k.view,
                              .v = in.v.view,
                              .o = results.o.view,
                              .lse = results.lse.view,
                              .scale = scale};
  const auto begin = Clock::now();
  LONGSPAN_CHECK_OK(engine.forward(call, ahead, saved, buffers.workspace, stream));
  results.forward_seconds = std::min(results.forward_seconds, seconds_since(begin));
  // The workspace carries nothing from forward to backward.
  if (buffers.workspace.bytes > 0) {
    std::memset(buffers.workspace.data, 0xff, buffers.workspace.bytes);
  }
  const BackwardOperands back{.q = in.q.view,
                              .k = in.k.view,
                              .v = in.v.view,
                              .o = results.o.view,
                              .lse = results.lse.view,
                              .dout = in.dout.view,
                              .dq = results.dq.view,
                              .dk = results.dk.view,
                              .dv = results.dv.view,
                              .scale = scale};
  const auto middle = Clock::now();
  LONGSPAN_CHECK_OK(engine.backward(call, back, saved, buffers.workspace, stream));
  results.backward_seconds = std::min(results.backward_seconds, seconds_since(middle));
  return {};
}

std::vector<std::byte> bytes_of(const RankResults& results) {
  std::vector<std::byte> bytes;
  for (const Tensor* tensor : tensors_of(results)) {
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
  RankResults results = make_results(std::move(call), rank);
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
