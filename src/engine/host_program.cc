#include <algorithm>
#include <memory>
#include <utility>

#include "engine/cuda_program.h"
#include "engine/executor.h"
#include "engine/host_ops.h"
#include "engine/row_program.h"

namespace longspan {
namespace {

/// The rows of a fill whose tokens are there in this call: the first ones.
Fill live(const Schedule& schedule, Fill fill, const ActualLengths& lengths) {
  if (lengths.q.empty()) return fill;
  const Run& run = run_of(schedule, fill);
  const int64_t there = clip(run.tokens, lengths.q[static_cast<size_t>(run.sequence)]).size();
  fill.rows = std::clamp<int64_t>(run.row + there - fill.row, 0, fill.rows);
  return fill;
}

class HostProgram final : public RowProgram {
 public:
  explicit HostProgram(std::shared_ptr<Workers> workers) : workers_(std::move(workers)) {}

  Status run(const Schedule& schedule, StepId id, std::span<const TensorView> views,
             const Sides& sides, Stream) const override {
    const Step& step = schedule.steps[static_cast<size_t>(id)];
    const auto view = [&](BufferId buffer) -> const TensorView& {
      return views[static_cast<size_t>(buffer)];
    };
    switch (step.kind) {
      case StepKind::kDelta:
        for (const Copy& rows : step.copies) {
          delta_rows(view(step.o), view(step.dout), view(step.delta), rows, *workers_);
        }
        return {};
      case StepKind::kFill:
        for (const Fill& fill : step.fills) {
          const Buffer& buffer = schedule.buffers[static_cast<size_t>(fill.buffer)];
          fill_rows(view(fill.buffer), fill, starts_lowest(buffer.quantity), *workers_);
        }
        return {};
      case StepKind::kAccumulate:
        for (const Copy& c : step.copies) add_rows(view(c.src), view(c.dst), c, *workers_);
        return {};
      case StepKind::kMaximum:
        for (const Copy& c : step.copies) max_rows(view(c.src), view(c.dst), c, *workers_);
        return {};
      case StepKind::kLend:
      case StepKind::kPack:
      case StepKind::kUnpack:
        for (const Copy& c : step.copies) copy_rows(view(c.src), view(c.dst), c, *workers_);
        return {};
      case StepKind::kSink:
        for (const Fill& rows : step.fills) {
          sink_rows(view(step.o), view(step.lse), sides.sink, head_of(schedule, step),
                    live(schedule, rows, sides.lengths), *workers_);
        }
        return {};
      case StepKind::kSinkGradient:
        sink_gradient(view(step.lse), view(step.delta), sides.sink, sides.dsink,
                      head_of(schedule, step), step.fills, *workers_);
        return {};
      default: return not_a_row_step(step);
    }
  }

  Status clear(const TensorView& view, Stream) const override {
    if (view.data != nullptr) fill_rows(view, {.row = 0, .rows = view.rows()}, false, *workers_);
    return {};
  }

 private:
  std::shared_ptr<Workers> workers_;
};

}  // namespace

bool starts_lowest(Quantity quantity) {
  return quantity == Quantity::kLse || quantity == Quantity::kMaxLogit;
}

int64_t head_of(const Schedule& schedule, const Step& step) {
  return schedule.buffers[static_cast<size_t>(step.lse)].head_begin;
}

const Run& run_of(const Schedule& schedule, const Fill& fill) {
  const std::vector<Run>& runs = schedule.buffers[static_cast<size_t>(fill.buffer)].runs;
  const auto after = std::upper_bound(runs.begin(), runs.end(), fill.row,
                                      [](int64_t row, const Run& run) { return row < run.row; });
  return *(after - 1);
}

Error not_a_row_step(const Step& step) {
  return {ErrorCode::kInternal, std::string(name(step.kind)) + " is no row operation", "executor"};
}

Result<std::shared_ptr<const RowProgram>> make_row_program(const Schedule& schedule,
                                                           const Device& device) {
  if (device.is_cuda()) return make_cuda_program(schedule, device);
  return std::shared_ptr<const RowProgram>(std::make_shared<HostProgram>(device.workers));
}

}  // namespace longspan
