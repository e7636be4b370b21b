// What a call works on, from what its caller gives.
#pragma once

#include <array>
#include <span>

#include "engine/call.h"
#include "engine/executor.h"
#include "guard/guard.h"
#include "longspan/engine.h"

namespace longspan {

OperandViews views_of(const ForwardOperands& operands);
OperandViews views_of(const BackwardOperands& operands);

/// Side operands with the problem's values where the caller gives none.
Sides sides_of(const PreparedCall& call, const ForwardOperands& operands);
Sides sides_of(const PreparedCall& call, const BackwardOperands& operands);

/// What the call writes; absent ones have no data.
using Outputs = std::array<TensorView, 5>;
static_assert(std::tuple_size_v<Outputs> <= guard::kMostOutputs);
Outputs outputs_of(const ForwardOperands& operands);
Outputs outputs_of(const BackwardOperands& operands);

}  // namespace longspan
