// What a plan staged, found again in a call.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "longspan/provider.h"

namespace longspan::hopper {

inline Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "hopper"};
}

/// t.staged as the `Work` that the plan's stage() made of t.tiles. invalid_argument where other
/// tiles or none were staged.
template <class Work, class Tiles>
Result<const Work*> staged_as(const Tiles& t) {
  const auto* const staged = dynamic_cast<const Work*>(t.staged);
  if (staged == nullptr) {
    return invalid(
        fmt::format("{} tiles were not staged: pass what stage() made of them", t.tiles.size()));
  }
  if (std::ranges::equal(staged->tiles, t.tiles)) return staged;
  return invalid(fmt::format("{} tiles, but other ones ({}) were staged: stage these",
                             t.tiles.size(), staged->tiles.size()));
}

}  // namespace longspan::hopper
