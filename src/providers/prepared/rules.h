// What the provider declines whatever the store holds.
#pragma once

#include <optional>

#include "longspan/decline.h"
#include "longspan/provider.h"

namespace longspan::prepared {

/// The first limit that `problem` or `device` exceeds, or none.
std::optional<Decline> refusal(const TileProblem& problem, const Device& device);

}  // namespace longspan::prepared
