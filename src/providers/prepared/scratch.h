// Where a plan's workspace holds what. Bytes from its start.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "longspan/provider.h"
#include "providers/prepared/choose.h"
#include "providers/prepared/launches.h"
#include "providers/prepared/values.h"

namespace longspan::prepared {

struct Scratch {
  std::array<size_t, kNames> places{};  // of what is not in place
  size_t buffers = 0;                   // of all buffers of a launch
  size_t end = 0;

  size_t operator[](Name name) const { return places[static_cast<size_t>(name)]; }
};

/// Enough for every launch of the problem on these builds.
Scratch scratch_of(const TileProblem& problem, const Builds& builds);

/// The tensor that a buffer is in a launch, without its address, and its bytes.
Operand buffer_operand(const Buffer& buffer, const Manifest& manifest, const TileProblem& problem,
                       const Launch& launch);
size_t bytes_of(const Operand& operand);

}  // namespace longspan::prepared
