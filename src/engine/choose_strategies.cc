#include "engine/choose_strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace longspan {

std::vector<int> sample_ranks(int ranks) {
  constexpr int kMost = 8;
  std::vector<int> sample;
  const int count = std::min(ranks, kMost);
  for (int i = 0; i < count; ++i) {
    sample.push_back(count == 1 ? 0 : static_cast<int>(int64_t{ranks - 1} * i / (count - 1)));
  }
  return sample;
}

Result<double> modelled_seconds(const Setting& setting, Direction direction, const Rates& rates) {
  LONGSPAN_TRY(
      const Strategy* const strategy,
      find_strategy(direction == Direction::kForward ? setting.forward : setting.backward));
  double slowest = 0;
  for (const int rank : sample_ranks(setting.topology.ranks())) {
    LONGSPAN_TRY(const Schedule schedule, strategy->build(setting, direction, rank));
    slowest = std::max(slowest, cost(schedule, setting.topology, rates).seconds);
  }
  return slowest;
}

namespace {

/// Strategies that may run a direction; the others' declines go to the selection.
Result<std::vector<const Strategy*>> candidates(const std::string& wanted, const Setting& setting,
                                                Direction direction, Selection& selection) {
  std::vector<const Strategy*> result;
  if (wanted != "auto") {
    LONGSPAN_TRY(const Strategy* const strategy, find_strategy(wanted));
    result = {strategy};
  } else {
    result.assign(strategies().begin(), strategies().end());
  }
  std::erase_if(result, [&](const Strategy* strategy) {
    const Verdict verdict = strategy->consider(setting, direction);
    const Decline* decline = declined(verdict);
    if (decline == nullptr) return false;
    selection.declines.push_back(
        {std::string(strategy->name), std::string(name(direction)), *decline});
    return true;
  });
  return result;
}

/// Prices strategies by the slowest sampled rank.
class Pricing {
 public:
  Pricing(Setting& setting, const Rates& rates) : setting_(setting), rates_(rates) {}

  /// Forward: `after_same` says whether a backward follows (of the same strategy).
  Result<double> seconds(const Strategy& strategy, Direction direction, bool after_same) {
    const auto key = std::tuple(strategy.name, direction, after_same, setting_.head_slices);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    setting_.forward = after_same ? strategy.name : std::string_view("other");
    setting_.backward = strategy.name;
    if (direction == Direction::kForward) {
      setting_.forward = strategy.name;
      if (!after_same) setting_.backward = kNoStrategy;
    }
    LONGSPAN_TRY(const double slowest, modelled_seconds(setting_, direction, rates_));
    known_.emplace(key, slowest);
    return slowest;
  }

 private:
  Setting& setting_;
  const Rates& rates_;
  std::map<std::tuple<std::string_view, Direction, bool, int>, double> known_;
};

std::string reason(const std::string& wanted, int ranks, double seconds) {
  if (wanted != "auto") return "as asked";
  if (ranks == 1) return "one rank: nothing moves";
  return fmt::format("least modelled time, {:.3g} ms", seconds * 1e3);
}

/// Strategies of both directions and their modelled times; backward is null where it is not wanted.
struct Pair {
  const Strategy* forward = nullptr;
  const Strategy* backward = nullptr;
  double forward_seconds = 0;
  double backward_seconds = 0;

  double seconds() const { return forward_seconds + backward_seconds; }

  Status price(Pricing& pricing) {
    LONGSPAN_TRY(forward_seconds,
                 pricing.seconds(*forward, Direction::kForward, backward != nullptr));
    if (backward == nullptr) return {};
    LONGSPAN_TRY(backward_seconds,
                 pricing.seconds(*backward, Direction::kBackward, forward == backward));
    return {};
  }
};

/// What a pair is taken for. Where backward finds another layout than forward left, all that it
/// reads moves and O is made up for delta: on GPUs that cost two and a half times of what is
/// modelled, which less than a twentieth of the whole does not make up for (docs/performance.md).
double weighed(const Pair& pair, const Device& device) {
  const bool kept = pair.backward == nullptr || pair.backward == pair.forward;
  return pair.seconds() * (kept || !device.is_cuda() ? 1 : 1.05);
}

/// In how many slices the pair exchanges heads. More of them, which cost the host time, must be
/// worth a hundredth of the modelled time.
Status choose_head_slices(Setting& setting, Pair& best, Pricing& pricing) {
  for (const int slices : {2, 4}) {
    Pair pair = best;
    const int before = std::exchange(setting.head_slices, slices);
    LONGSPAN_CHECK_OK(pair.price(pricing));
    if (pair.seconds() < 0.99 * best.seconds()) {
      best = pair;
      continue;
    }
    setting.head_slices = before;
    if (pair.seconds() == best.seconds()) break;  // it exchanges none, whatever their number
  }
  return {};
}

}  // namespace

Status choose_strategies(Setting& setting, const Device& device, const Options& options,
                         Explanation& explanation) {
  LONGSPAN_TRY(const auto forward, candidates(options.forward.strategy, setting,
                                              Direction::kForward, explanation.forward));
  std::vector<const Strategy*> backward = {nullptr};
  if (!explanation.forward_only) {
    LONGSPAN_TRY(backward, candidates(options.backward.strategy, setting, Direction::kBackward,
                                      explanation.backward));
  }
  Pricing pricing(setting, options.rates);
  const int ranks = setting.topology.ranks();
  const bool slices = options.head_slices == 0 && ranks > 1 && device.is_cuda();
  const bool priced = ranks > 1 && (forward.size() > 1 || backward.size() > 1 || slices);
  std::optional<Pair> best;
  for (const Strategy* f : forward) {
    for (const Strategy* b : backward) {
      Pair pair{f, b};
      if (priced) LONGSPAN_CHECK_OK(pair.price(pricing));
      if (!best || weighed(pair, device) < weighed(*best, device)) best = pair;
    }
  }
  if (!best) return {};
  if (slices) LONGSPAN_CHECK_OK(choose_head_slices(setting, *best, pricing));
  explanation.head_slices = setting.head_slices;
  explanation.forward.strategy = best->forward;
  explanation.backward.strategy = best->backward;
  explanation.forward.strategy_reason =
      reason(options.forward.strategy, ranks, best->forward_seconds);
  explanation.backward.strategy_reason =
      reason(options.backward.strategy, ranks, best->backward_seconds);
  return {};
}

}  // namespace longspan
