// Fills of whole outputs before anything else of a call, where OutputFill::kAlways asks for them.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "engine/row_program.h"
#include "longspan/device.h"
#include "longspan/engine.h"
#include "longspan/schedule.h"
#include "longspan/status.h"

namespace longspan {

/// One direction's. Immutable.
class OutputFills {
 public:
  /// Of all rows of O and LSE, or of dQ, dK and dV, that `schedule` writes.
  static Result<std::shared_ptr<const OutputFills>> make(const Schedule& schedule,
                                                         const Device& device);

  /// Queues them: zeros, and -inf in LSE. Allocates nothing.
  Status run(const OperandViews& views, const Sides& sides, Stream stream) const;
  int64_t count() const { return static_cast<int64_t>(schedule_.steps.size()); }

 private:
  Schedule schedule_;  // a fill step for each output
  std::shared_ptr<const RowProgram> rows_;
};

}  // namespace longspan
