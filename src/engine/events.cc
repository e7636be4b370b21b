#include "engine/events.h"

#include <utility>

#include "base/log.h"
#include "longspan/libraries.h"
#include "plan/cache.h"

namespace longspan {

Events::Events(const Options& options, int rank)
    : options_(options), rank_(rank), plans_told_(options.plans->statistics()) {}

void Events::chosen(Direction direction, const Selection& selection) const {
  const Routing& routing =
      (direction == Direction::kForward ? options_.forward : options_.backward).routing;
  const bool other =
      routing.mode == RoutingMode::kPrefer && routing.provider != selection.provider->name();
  say(options_.log, other ? LogLevel::kWarning : LogLevel::kInfo,
      "rank {}: {} strategy {} ({}), provider {} ({})", rank_, name(direction),
      selection.strategy->name, selection.strategy_reason, selection.provider->name(),
      selection.provider_reason);
}

void Events::chosen(const Explanation& explanation) {
  if (!options_.log) return;
  libraries();
  say(options_.log, LogLevel::kInfo, "rank {}: partition {} ({})", rank_,
      name(explanation.partition), explanation.partition_reason);
  chosen(Direction::kForward, explanation.forward);
  if (!explanation.forward_only) chosen(Direction::kBackward, explanation.backward);
}

void Events::libraries() {
  const std::vector<std::string> opened = opened_libraries();
  for (; libraries_told_ < opened.size(); ++libraries_told_) {
    say(options_.log, LogLevel::kInfo, "rank {}: opened {}", rank_, opened[libraries_told_]);
  }
}

void Events::plans() {
  const CacheStatistics now = options_.plans->statistics();
  const CacheStatistics before = std::exchange(plans_told_, now);
  if (now.builds > before.builds) {
    say(options_.log, LogLevel::kInfo, "rank {}: {} plans built; the cache keeps {} entries", rank_,
        now.builds - before.builds, now.size);
  }
  if (now.evictions > before.evictions) {
    say(options_.log, LogLevel::kWarning,
        "rank {}: {} entries evicted from the plan cache of {}; a larger one keeps their plans "
        "(make_plan_cache, Options::plans)",
        rank_, now.evictions - before.evictions, now.size);
  }
}

void Events::prepared(const PreparedCall& call, double seconds) {
  if (!options_.log) return;
  plans();
  say(options_.log, LogLevel::kInfo,
      "rank {}: prepared in {:.1f} ms, {} bytes of workspace forward and {} backward: {}", rank_,
      seconds * 1e3, call.workspace_bytes(Direction::kForward),
      call.workspace_bytes(Direction::kBackward), call.problem().text());
}

void Events::forgot_call(size_t kept) const {
  say(options_.log, LogLevel::kInfo,
      "rank {}: a call is forgotten, the last {} are kept; keep Call objects to reuse more", rank_,
      kept);
}

void Events::guard_failed(const Error& error) const {
  say(options_.log, LogLevel::kError, "rank {}: {}", rank_, error.text());
}

void Events::lost(const Error& error) {
  if (std::exchange(lost_, true)) return;
  say(options_.log, LogLevel::kError, "rank {}: gives up, {}", rank_, error.text());
}

}  // namespace longspan
