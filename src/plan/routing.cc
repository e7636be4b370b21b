#include <fmt/format.h>

#include <array>
#include <utility>

#include "longspan/engine.h"

namespace longspan {
namespace {

Error invalid(std::string_view text) {
  std::string names;
  for (const Provider* provider : providers()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", provider->name());
  }
  return {
      ErrorCode::kInvalidArgument,
      fmt::format("provider \"{}\" is not allowed; auto, or prefer:NAME, require:NAME, off:NAME "
                  "with NAME one of {}",
                  text, names),
      "routing"};
}

}  // namespace

std::string text(const Routing& routing) {
  constexpr std::array<std::string_view, 4> kWords = {"auto", "prefer", "require", "off"};
  const std::string_view word = kWords[static_cast<size_t>(routing.mode)];
  if (routing.mode == RoutingMode::kAuto) return std::string(word);
  return fmt::format("{}:{}", word, routing.provider);
}

Result<Routing> parse_routing(std::string_view text) {
  if (text == "auto") return Routing{};
  constexpr std::array kModes = {std::pair{std::string_view("prefer"), RoutingMode::kPrefer},
                                 std::pair{std::string_view("require"), RoutingMode::kRequire},
                                 std::pair{std::string_view("off"), RoutingMode::kOff}};
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return invalid(text);
  for (const auto& [word, mode] : kModes) {
    if (text.substr(0, colon) != word) continue;
    for (const Provider* provider : providers()) {
      if (provider->name() == text.substr(colon + 1)) {
        return Routing{mode, std::string(provider->name())};
      }
    }
  }
  return invalid(text);
}

}  // namespace longspan
