// What the cudnn provider declines, without asking cuDNN.
#pragma once

#include <optional>

#include "longspan/decline.h"
#include "longspan/provider.h"

namespace longspan::cudnn {

/// The first limit that `problem` or `device` exceeds, or none. Knows cuDNN 9.19 on compute
/// capability 9.0, where it accepts some graphs that it answers wrongly.
std::optional<Decline> refusal(const TileProblem& problem, const Device& device);

/// Most bytes of scores that the deterministic backward may write to memory.
inline constexpr int64_t kMostDeterministicBytes = int64_t{4} << 30;

}  // namespace longspan::cudnn
