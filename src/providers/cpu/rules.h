// What the CPU providers accept.
#pragma once

#include <optional>

#include "providers/rules.h"

namespace longspan::cpu {

/// The first limit that `problem` or `device` exceeds, or none.
std::optional<Decline> refusal(const TileProblem& problem, const Device& device);

}  // namespace longspan::cpu
