#include <fmt/format.h>

#include <array>
#include <string>

#include "strategies/list.h"

namespace longspan {

std::span<const Strategy* const> strategies() {
  static constexpr std::array kAll = {&kRing, &kAllGather, &kAllToAll, &kHybrid, &kHeadParallel};
  return kAll;
}

Result<const Strategy*> find_strategy(std::string_view name) {
  std::string names = "auto";
  for (const Strategy* strategy : strategies()) {
    if (strategy->name == name) return strategy;
    names += fmt::format(", {}", strategy->name);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("unknown strategy \"{}\"; one of {}", name, names), "strategy"};
}

}  // namespace longspan
