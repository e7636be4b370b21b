#include "engine/cuda_program.h"

#include <array>
#include <utility>
#include <vector>

#include "cuda/row_ops.h"
#include "engine/executor.h"

namespace longspan {
namespace {

using cuda::RowItem;
using cuda::RowOp;
using cuda::RowTable;

RowItem item_of(const Copy& c) {
  return {.src = c.src,
          .dst = c.dst,
          .src_row = c.src_row,
          .src_step = c.src_step,
          .dst_row = c.dst_row,
          .dst_step = c.dst_step,
          .rows = c.rows,
          .src_head = static_cast<int32_t>(c.src_head),
          .dst_head = static_cast<int32_t>(c.dst_head),
          .heads = static_cast<int32_t>(c.heads)};
}

/// Rows of a fill, of all heads.
RowItem item_of(const Schedule& schedule, const Fill& fill, BufferId src, BufferId dst) {
  const Buffer& buffer = schedule.buffers[static_cast<size_t>(fill.buffer)];
  return {.src = src,
          .dst = dst,
          .src_row = fill.row,
          .dst_row = fill.row,
          .rows = fill.rows,
          .heads = static_cast<int32_t>(buffer.heads)};
}

/// The rows of a sink step's fill, and their tokens.
RowItem sink_item(const Schedule& schedule, const Step& step, const Fill& fill) {
  RowItem item = item_of(schedule, fill, step.o, step.lse);
  const Run& run = run_of(schedule, fill);
  item.sequence = run.sequence;
  item.token = run.tokens.at(fill.row - run.row);
  item.token_step = run.tokens.stride;
  return item;
}

/// The tables of one step: those of an operation, of the fills the rows that start at -inf, and of
/// the copies those to a wider type.
struct Tables {
  RowTable rows;
  RowTable lowest;
  RowTable widened;
};

bool widens(const Schedule& schedule, const Copy& copy) {
  const auto size = [&](BufferId id) {
    return size_of(schedule.buffers[static_cast<size_t>(id)].dtype);
  };
  return size(copy.src) < size(copy.dst);
}

Result<Tables> tables_of(const Schedule& schedule, const Step& step) {
  if (step.kind == StepKind::kPull) return Tables();  // attend's
  std::vector<RowItem> rows;
  std::vector<RowItem> lowest;
  std::vector<RowItem> widened;
  const bool moves = step.kind == StepKind::kPack || step.kind == StepKind::kUnpack;
  for (const Copy& copy : step.copies) {
    (moves && widens(schedule, copy) ? widened : rows).push_back(item_of(copy));
  }
  for (const Fill& fill : step.fills) {
    const Quantity quantity = schedule.buffers[static_cast<size_t>(fill.buffer)].quantity;
    if (step.kind == StepKind::kSink) {
      rows.push_back(sink_item(schedule, step, fill));
    } else if (step.kind == StepKind::kSinkGradient) {
      rows.push_back(item_of(schedule, fill, step.lse, step.delta));
    } else {
      (starts_lowest(quantity) ? lowest : rows)
          .push_back(item_of(schedule, fill, fill.buffer, fill.buffer));
    }
  }
  Tables tables;
  const bool sums = step.kind == StepKind::kAccumulate || step.kind == StepKind::kMaximum;
  LONGSPAN_TRY(tables.rows, RowTable::make(rows, sums));
  LONGSPAN_TRY(tables.lowest, RowTable::make(lowest));
  LONGSPAN_TRY(tables.widened, RowTable::make(widened));
  return Result<Tables>(std::move(tables));
}

class CudaProgram final : public RowProgram {
 public:
  CudaProgram(int ordinal, std::vector<Tables> steps)
      : ordinal_(ordinal), steps_(std::move(steps)) {}

  Status run(const Schedule& schedule, StepId id, std::span<const TensorView> views,
             const Sides& sides, Stream stream) const override {
    const cuda::DeviceScope scope(ordinal_);  // a default stream is the current device's
    const Step& step = schedule.steps[static_cast<size_t>(id)];
    const Tables& tables = steps_[static_cast<size_t>(id)];
    const auto rows = [&](RowOp op, const TensorView& third = {}, int64_t head = 0) {
      return tables.rows.run(op, views, third, head, stream);
    };
    switch (step.kind) {
      case StepKind::kDelta: return rows(RowOp::kDelta, views[static_cast<size_t>(step.dout)]);
      case StepKind::kFill:
        LONGSPAN_CHECK_OK(rows(RowOp::kZero));
        return tables.lowest.run(RowOp::kLowest, views, {}, 0, stream);
      case StepKind::kAccumulate: return rows(RowOp::kAdd);
      case StepKind::kMaximum: return rows(RowOp::kMax);
      case StepKind::kLend:
      case StepKind::kPack:
      case StepKind::kUnpack:
        LONGSPAN_CHECK_OK(rows(RowOp::kCopy));
        return tables.widened.run(RowOp::kWiden, views, {}, 0, stream);
      case StepKind::kSink:
        return tables.rows.run(RowOp::kSink, views, sides.sink, head_of(schedule, step), stream,
                               sides.lengths.q.data());
      case StepKind::kSinkGradient:
        return tables.rows.sink_gradient(views, sides.sink, sides.dsink, head_of(schedule, step),
                                         stream);
      default: return not_a_row_step(step);
    }
  }

  Status clear(const TensorView& view, Stream stream) const override {
    if (view.data == nullptr) return {};
    const cuda::DeviceScope scope(ordinal_);
    return cuda::clear(view, stream);
  }

 private:
  int ordinal_;
  std::vector<Tables> steps_;
};

}  // namespace

Result<std::shared_ptr<const RowProgram>> make_cuda_program(const Schedule& schedule,
                                                            const Device& device) {
  const cuda::DeviceScope scope(device.ordinal);
  std::vector<Tables> steps;
  for (const Step& step : schedule.steps) {
    LONGSPAN_TRY(Tables tables, tables_of(schedule, step));
    steps.push_back(std::move(tables));
  }
  return std::shared_ptr<const RowProgram>(
      std::make_shared<CudaProgram>(device.ordinal, std::move(steps)));
}

}  // namespace longspan
