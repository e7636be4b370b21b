#include "engine/gathering.h"

#include <fmt/format.h>

#include <utility>

#include "engine/choose_strategies.h"

namespace longspan {
namespace {

/// Why `provider` does not write whole gradients of gathered keys; empty where it does.
Result<std::string> why_added(const Setting& setting, const Provider& provider,
                              const Device& device, const Rates& rates) {
  Setting gathering = setting;
  gathering.gathers_whole = true;
  LONGSPAN_TRY(const Strategy* const strategy, find_strategy(setting.backward));
  for (const int rank : sample_ranks(setting.topology.ranks())) {
    LONGSPAN_TRY(const Schedule schedule, strategy->build(gathering, Direction::kBackward, rank));
    if (!schedule.tiles.features.whole) {
      return std::string(
          "they would not be whole (striped partition, sinks, rows in several tiles, or O that is "
          "kept in FP32)");
    }
    const Verdict verdict = provider.consider(schedule.tiles, device);
    if (const Decline* const decline = declined(verdict)) return decline->detail;
    if (!std::get<Offer>(verdict).partials_16bit) {
      return fmt::format("partial results of {} are not of 16 bits", provider.name());
    }
  }
  LONGSPAN_TRY(const double whole, modelled_seconds(gathering, Direction::kBackward, rates));
  LONGSPAN_TRY(const double added, modelled_seconds(setting, Direction::kBackward, rates));
  if (whole < added) return std::string();
  return fmt::format("whole ones of gathered keys are modelled at {:.3g} ms, {:.3g} ms without",
                     whole * 1e3, added * 1e3);
}

}  // namespace

Status choose_gathers(Setting& setting, const Device& device, const Rates& rates,
                      Selection& backward) {
  setting.gathers_whole = false;
  const bool asked = setting.backward == "all_gather" && setting.topology.ranks() > 1;
  if (!asked || !setting.whole || backward.provider == nullptr) return {};
  LONGSPAN_TRY(const std::string why, why_added(setting, *backward.provider, device, rates));
  setting.gathers_whole = why.empty();
  backward.strategy_reason += why.empty() ? "; its gradients are whole, of gathered keys"
                                          : "; its gradients are added up: " + why;
  return {};
}

}  // namespace longspan
