// How a recorded plan and an engine's options go together.
#pragma once

#include "longspan/plan_record.h"

namespace longspan {

/// `mine` with all that the plan decides. invalid_argument for an option of `mine` that is neither
/// at its default nor as in the plan.
Result<Options> options_with(const PlanRecord& record, Options mine);

}  // namespace longspan
