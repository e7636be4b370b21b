#include "rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "mirror.h"
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

/// Everything on the device that computes: operands, saved buffers and workspace.
struct Bench {
  explicit Bench(const Device& on) : device(on), mirror(on) {}

  Device device;
  Mirror mirror;
  ForwardOperands forward;
  BackwardOperands backward;
  std::vector<std::shared_ptr<void>> memory;  // of the saved buffers
  std::vector<size_t> saved_bytes;
  Saved saved;
  Workspace workspace;

  Status poison_workspace() const {
    return set_bytes(device, workspace.data, 0xff, workspace.bytes);
  }
  int64_t bytes() const {
    size_t total = workspace.bytes;
    for (const size_t bytes : saved_bytes) total += bytes;
    return static_cast<int64_t>(total);
  }
};

Status make_saved(const Call& call, Bench& bench) {
  for (const BufferSpec& buffer : call.saved_layout()) {
    if (!buffer.alias.empty()) continue;
    int64_t bytes = size_of(buffer.dtype);
    for (const int64_t extent : buffer.shape) bytes *= extent;
    bench.saved_bytes.push_back(static_cast<size_t>(bytes));
    LONGSPAN_TRY(bench.memory.emplace_back(), allocate_on(bench.device, bench.saved_bytes.back()));
    bench.saved.push_back(bench.memory.back().get());
  }
  return {};
}

Status make_operands(const ShardInputs& in, RankResults& results, Bench& bench) {
  Mirror& mirror = bench.mirror;
  ForwardOperands& f = bench.forward;
  LONGSPAN_TRY(f.q, mirror.copy_of(in.q));
  LONGSPAN_TRY(f.k, mirror.copy_of(in.k));
  LONGSPAN_TRY(f.v, mirror.copy_of(in.v));
  LONGSPAN_TRY(f.o, mirror.twin_of(results.o));
  LONGSPAN_TRY(f.lse, mirror.twin_of(results.lse));
  LONGSPAN_TRY(f.max_logit, mirror.twin_of(results.max_logit));
  f.scale = results.call->problem().scale;
  f.side = in.side;
  LONGSPAN_TRY(f.side.sink, mirror.copy_of(in.side.sink));
  LONGSPAN_TRY(f.side.slopes, mirror.copy_of(in.side.slopes));
  LONGSPAN_TRY(f.side.bias, mirror.copy_of(in.side.bias));
  BackwardOperands& b = bench.backward;
  b.q = f.q;
  b.k = f.k;
  b.v = f.v;
  b.o = f.o;
  b.lse = f.lse;
  b.scale = f.scale;
  b.side = f.side;
  LONGSPAN_TRY(b.dout, mirror.copy_of(in.dout));
  LONGSPAN_TRY(b.dq, mirror.twin_of(results.dq));
  LONGSPAN_TRY(b.dk, mirror.twin_of(results.dk));
  LONGSPAN_TRY(b.dv, mirror.twin_of(results.dv));
  LONGSPAN_TRY(b.dsink, mirror.twin_of(results.dsink));
  LONGSPAN_TRY(b.dbias, mirror.twin_of(results.dbias));
  return {};
}

Status poison_all(const Bench& bench, const RankResults& results) {
  for (size_t i = 0; i < bench.saved.size(); ++i) {
    LONGSPAN_CHECK_OK(set_bytes(bench.device, bench.saved[i], 0xff, bench.saved_bytes[i]));
  }
  LONGSPAN_CHECK_OK(bench.poison_workspace());
  for (const auto& [name, tensor] : present(results)) tool::poison(*tensor);
  return bench.mirror.upload();
}

/// Seconds until the device is done with what `queue` queues.
template <class Queue>
Result<double> timed(const Bench& bench, Queue&& queue) {
  longspan::Stream stream;
  const auto begin = Clock::now();
  LONGSPAN_CHECK_OK(queue(stream));
  LONGSPAN_CHECK_OK(synchronize(bench.device, stream));
  return seconds_since(begin);
}

Status run_once(Engine& engine, const Bench& bench, RankResults& results) {
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

Status run_repeats(const RankTask& task, Engine& engine, const Bench& bench, RankResults& results) {
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
  const size_t workspace = std::max(call->workspace_bytes(Direction::kForward),
                                    call->workspace_bytes(Direction::kBackward));
  LONGSPAN_TRY(const Arena arena, Arena::make(task.communicator, workspace));
  const ShardInputs inputs = shard_inputs(*task.inputs, call->partition(), rank);
  RankResults results;
  static_cast<ResultTensors&>(results) = make_rank_results(*call, rank);
  results.call = std::move(call);
  Bench bench(task.device);
  bench.workspace = arena.workspace();
  LONGSPAN_CHECK_OK(make_saved(*results.call, bench));
  LONGSPAN_CHECK_OK(make_operands(inputs, results, bench));
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
