// The compute steps of a schedule other than attend, on the memory of one kind of device.
#pragma once

#include <memory>
#include <span>

#include "longspan/provider.h"
#include "longspan/schedule.h"

namespace longspan {

struct Sides;

/// Made once per schedule; immutable. Runs allocate nothing and are queued on the stream where the
/// device has streams.
class RowProgram {
 public:
  virtual ~RowProgram() = default;
  /// One step. `views`: of all buffers of the schedule.
  virtual Status run(const Schedule& schedule, StepId id, std::span<const TensorView> views,
                     const Sides& sides, Stream stream) const = 0;
  /// Gradients that steps add to start at 0. Absent views are left alone.
  virtual Status clear(const TensorView& view, Stream stream) const = 0;
};

/// Whether rows of the quantity start at -inf instead of 0.
bool starts_lowest(Quantity quantity);
/// The first of the problem's query heads that a sink step works on.
int64_t head_of(const Schedule& schedule, const Step& step);
/// The run that the rows of a fill belong to.
const Run& run_of(const Schedule& schedule, const Fill& fill);
Error not_a_row_step(const Step& step);

Result<std::shared_ptr<const RowProgram>> make_row_program(const Schedule& schedule,
                                                           const Device& device);

}  // namespace longspan
