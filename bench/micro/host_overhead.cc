// Host work around a call: building and proving schedules, finding and binding a prepared call.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "longspan/longspan.h"

namespace longspan {
namespace {

/// Packed documents with a long tail: many short ones, a few long ones.
std::string packed_text(int sequences) {
  std::mt19937 random(7);
  std::string lengths;
  for (int i = 0; i < sequences; ++i) {
    const bool is_long = random() % 50 == 0;
    const auto length = static_cast<int>(is_long ? 500 + random() % 4000 : 1 + random() % 200);
    lengths += (i == 0 ? "" : ",") + std::to_string(length);
  }
  return "dtype=bf16 heads=32/8 dim=128 lengths=" + lengths + " mask=causal";
}

template <class T>
T must(Result<T> result, benchmark::State& state) {
  if (!result.ok()) state.SkipWithError(result.error().text().c_str());
  return std::move(result).value();
}

void build_and_check(benchmark::State& state, const char* strategy, const char* partition) {
  const int ranks = 8;
  const Problem problem = must(parse_problem(packed_text(1000)), state);
  const PartitionKind kind = std::string(partition) == "auto"
                                 ? choose_partition(problem, ranks).kind
                                 : must(parse_partition(partition), state);
  const Strategy* const chosen = must(find_strategy(strategy), state);
  int64_t tiles = 0;
  for (auto _ : state) {
    tiles = 0;
    Setting setting{problem, must(Partition::make(problem, kind, ranks), state),
                    Topology::blocks(ranks, 2), strategy, strategy};
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < ranks; ++rank) {
      schedules.push_back(must(chosen->build(setting, Direction::kForward, rank), state));
      tiles += schedules.back().tile_count();
    }
    const Status status = check(setting, schedules);
    if (!status.ok()) state.SkipWithError(status.error().text().c_str());
  }
  state.counters["tiles"] = static_cast<double>(tiles);
}
BENCHMARK_CAPTURE(build_and_check, ring_auto, "ring", "auto")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(build_and_check, all_gather_auto, "all_gather", "auto")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(build_and_check, all_to_all_auto, "all_to_all", "auto")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(build_and_check, hybrid_auto, "hybrid", "auto")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(build_and_check, ring_zigzag, "ring", "zigzag")->Unit(benchmark::kMillisecond);

/// One rank with tensors for a problem.
struct Bound {
  Bound(const std::string& text, benchmark::State& state)
      : problem(must(parse_problem(text), state)),
        engine(must(Engine::create({}, make_threads_communicators(Topology::blocks(1, 1))[0],
                                   cpu_device(1)),
                    state)),
        call(must(engine->prepare(problem), state)) {
    const auto tensor = [&](int64_t rows, int64_t heads, int64_t dim, DType dtype) {
      const int64_t bytes = rows * heads * dim * size_of(dtype);
      memory.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
      return packed_view(memory.back().get(), dtype, rows, heads, dim);
    };
    const Problem& p = problem;
    const DType acc = accumulator(p.dtype);
    operands = {.q = tensor(p.lengths.tokens_q, p.heads_q, p.dim_qk, p.dtype),
                .k = tensor(p.lengths.tokens_k, p.heads_kv, p.dim_qk, p.dtype),
                .v = tensor(p.lengths.tokens_k, p.heads_kv, p.dim_v, p.dtype),
                .o = tensor(p.lengths.tokens_q, p.heads_q, p.dim_v, p.dtype),
                .lse = tensor(p.lengths.tokens_q, p.heads_q, 1, acc),
                .scale = p.scale};
    for (const BufferSpec& spec : call->saved_layout()) {
      if (!spec.alias.empty()) continue;
      saved.push_back(aligned(spec.shape[0] * spec.shape[1] * spec.shape[2] * size_of(spec.dtype)));
    }
    workspace.bytes = call->workspace_bytes(Direction::kForward);
    workspace.data = aligned(static_cast<int64_t>(workspace.bytes));
  }

  void* aligned(int64_t bytes) {
    size_t space = static_cast<size_t>(bytes) + kWorkspaceAlignment;
    memory.push_back(std::make_unique<std::byte[]>(space));
    void* data = memory.back().get();
    return std::align(kWorkspaceAlignment, static_cast<size_t>(bytes), data, space);
  }

  Problem problem;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Call> call;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  ForwardOperands operands;
  Saved saved;
  Workspace workspace;
};

void find_and_bind_dense(benchmark::State& state) {
  Bound b("dtype=bf16 heads=8/2 dim=64 lengths=1024 mask=causal", state);
  for (auto _ : state) {
    const auto call = must(b.engine->prepare(b.problem), state);
    const Status status = check_binding(*call, b.operands, b.saved, b.workspace);
    if (!status.ok()) state.SkipWithError(status.error().text().c_str());
  }
}
BENCHMARK(find_and_bind_dense)->Unit(benchmark::kMicrosecond);

void bind_packed_by_handle(benchmark::State& state) {
  Bound b(packed_text(1000), state);
  for (auto _ : state) {
    const Status status = check_binding(*b.call, b.operands, b.saved, b.workspace);
    if (!status.ok()) state.SkipWithError(status.error().text().c_str());
  }
}
BENCHMARK(bind_packed_by_handle)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace longspan

BENCHMARK_MAIN();
