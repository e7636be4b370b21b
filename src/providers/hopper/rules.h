// What the hopper provider takes.
#pragma once

#include <optional>

#include "longspan/decline.h"
#include "longspan/device.h"
#include "longspan/provider.h"

namespace longspan::hopper {

/// The first limit that `problem` on `device` exceeds, or none. Pure.
std::optional<Decline> refusal(const TileProblem& problem, const Device& device);

/// The first limit of launches that pull keys and values which a problem exceeds that is offered.
std::optional<Decline> pull_refusal(const TileProblem& problem);

}  // namespace longspan::hopper
