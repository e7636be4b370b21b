// What the providers for compute capability 9.0 refuse alike.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "longspan/decline.h"
#include "longspan/provider.h"
#include "longspan/status.h"

namespace longspan::sm90 {

inline constexpr const char* kOthers = "leave the provider to the automatic choice";

/// Devices that are no GPU of compute capability 9.0.
std::optional<Decline> refused_device(const Device& device);

/// Score terms, pages, largest logits and device lengths, by a provider that has none of them.
std::optional<Decline> refused_features(const Features& features, std::string_view provider);

/// invalid_argument, in the provider's name, unless all rows of the tiles are within the capacity.
Status inside(const TileProblem& problem, std::span<const PlacedTile> tiles,
              std::string_view provider);

}  // namespace longspan::sm90
