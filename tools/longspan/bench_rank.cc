#include "bench_rank.h"

#include <chrono>
#include <utility>

namespace longspan::tool {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return Microseconds(Clock::now() - begin).count(); }

}  // namespace

Result<std::unique_ptr<BenchRank>> BenchRank::make(const RankTask& task) {
  LONGSPAN_TRY(auto engine, Engine::create(task.options, task.communicator, task.device));
  std::unique_ptr<BenchRank> rank(new BenchRank(task, std::move(engine)));
  LONGSPAN_CHECK_OK(rank->set_up(task));
  return rank;
}

Status BenchRank::set_up(const RankTask& task) {
  LONGSPAN_TRY(clock_, DeviceClock::make(task.device));
  const auto begin = Clock::now();
  LONGSPAN_TRY(auto call, engine_->prepare(task.inputs->declared()));
  results_.prepare_seconds = since(begin) * 1e-6;
  const int rank = task.communicator->rank();
  inputs_ = shard_inputs(*task.inputs, call->partition(), rank);
  static_cast<ResultTensors&>(results_) = make_rank_results(*call, rank);
  results_.call = std::move(call);
  LONGSPAN_CHECK_OK(bench_.set_up(*results_.call, inputs_, results_));
  results_.peak_bytes = bench_.bytes();
  return poison();
}

Status BenchRank::poison() {
  LONGSPAN_CHECK_OK(bench_.poison_saved());
  LONGSPAN_CHECK_OK(bench_.poison_workspace());
  for (const auto& [name, tensor] : present(results_)) tool::poison(*tensor);
  return bench_.mirror.upload();
}

Status BenchRank::forward() {
  Stream stream = clock_->stream();
  return engine_->forward(*results_.call, bench_.forward, bench_.saved, bench_.workspace, stream);
}

Status BenchRank::backward() {
  Stream stream = clock_->stream();
  return engine_->backward(*results_.call, bench_.backward, bench_.saved, bench_.workspace, stream);
}

Status BenchRank::record() {
  LONGSPAN_TRY(recorded_forward_, clock_->record([this] { return forward(); }));
  if (!has_backward()) return {};
  LONGSPAN_TRY(recorded_backward_, clock_->record([this] { return backward(); }));
  return {};
}

bool BenchRank::runs(const SliceTask& task, Direction direction) const {
  if (direction == Direction::kBackward && !has_backward()) return false;
  return task.only.value_or(direction) == direction;
}

Status BenchRank::iterate(const SliceTask& task, Slice* slice) {
  if (runs(task, Direction::kForward)) {
    const auto begin = Clock::now();
    LONGSPAN_CHECK_OK(task.replay ? recorded_forward_->replay() : forward());
    if (slice != nullptr) slice->host_forward.push_back(since(begin));
    LONGSPAN_CHECK_OK(clock_->mark());
  }
  if (!runs(task, Direction::kBackward)) return {};
  const auto begin = Clock::now();
  LONGSPAN_CHECK_OK(task.replay ? recorded_backward_->replay() : backward());
  if (slice != nullptr) slice->host_backward.push_back(since(begin));
  return clock_->mark();
}

Result<Slice> BenchRank::run(const SliceTask& task) {
  Slice slice;
  for (int i = 0; i < task.warmup; ++i) LONGSPAN_CHECK_OK(iterate(task, nullptr));
  LONGSPAN_TRY(std::vector<double> laps, clock_->laps());
  const auto begin = Clock::now();
  LONGSPAN_CHECK_OK(clock_->mark());
  for (int i = 0; i < task.iterations; ++i) LONGSPAN_CHECK_OK(iterate(task, &slice));
  LONGSPAN_TRY(laps, clock_->laps());
  slice.wall = since(begin) / task.iterations;
  const bool has_forward = runs(task, Direction::kForward);
  const bool both = has_forward && runs(task, Direction::kBackward);
  for (size_t i = 0; i < laps.size(); ++i) {
    const bool is_forward = both ? i % 2 == 0 : has_forward;
    (is_forward ? slice.forward : slice.backward).push_back(laps[i]);
  }
  return slice;
}

}  // namespace longspan::tool
