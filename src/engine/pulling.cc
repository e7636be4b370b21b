#include "engine/pulling.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace longspan {
namespace {

const Buffer& at(const Schedule& schedule, BufferId id) {
  return schedule.buffers[static_cast<size_t>(id)];
}

/// The place of a peer among the lenders.
int lender_of(Pulling& pulling, int peer) {
  const auto known = std::find_if(pulling.lenders.begin(), pulling.lenders.end(),
                                  [&](const Pulling::Lender& l) { return l.rank == peer; });
  if (known == pulling.lenders.end()) {
    pulling.lenders.push_back({.rank = peer});
    return static_cast<int>(pulling.lenders.size()) - 1;
  }
  return static_cast<int>(known - pulling.lenders.begin());
}

bool pulls(const Schedule& schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [](const Step& step) { return step.kind == StepKind::kPull; });
}

Decline no_pull(std::string detail) { return {DeclineCode::kPull, std::move(detail)}; }

/// Why forward by `provider` does not pull, or nothing where all ranks can.
Result<std::optional<Decline>> pull_decline(Setting setting, const Provider& provider,
                                            const Device& device) {
  const int ranks = setting.topology.ranks();
  if (ranks > kMostLenders + 1) {
    return std::optional(no_pull(fmt::format("{} ranks > {}: a launch pulls from {} others at most",
                                             ranks, kMostLenders + 1, kMostLenders)));
  }
  setting.pulls = true;
  LONGSPAN_TRY(const Strategy* const strategy, find_strategy(setting.forward));
  for (int rank = 0; rank < ranks; ++rank) {
    LONGSPAN_TRY(const Schedule schedule, strategy->build(setting, Direction::kForward, rank));
    if (!pulls(schedule)) {
      return std::optional(
          no_pull("results would not be whole (striped partition, sinks, query rows in several "
                  "tiles, or O that backward needs in FP32)"));
    }
    for (const Verdict& verdict : {provider.consider(schedule.tiles, device),
                                   provider.consider_pulls(schedule.tiles, device)}) {
      if (const Decline* const decline = declined(verdict)) return std::optional(*decline);
    }
  }
  return std::optional<Decline>();
}

}  // namespace

Pulling pulling_of(const Schedule& schedule) {
  Pulling pulling;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    if (step.kind != StepKind::kPull) continue;
    pulling.step = static_cast<StepId>(i);
    for (const Copy& copy : step.copies) {
      const Buffer& source = at(schedule, copy.src);
      const bool keys = source.quantity == Quantity::kK;
      Pull pull{.src_row = copy.src_row, .dst_row = copy.dst_row, .rows = copy.rows};
      if (source.space == Space::kPeer) {
        pull.lender = lender_of(pulling, source.peer);
        pulling.lenders[static_cast<size_t>(pull.lender)].bytes[keys ? 0 : 1] =
            static_cast<size_t>(source.bytes());
      }
      if (keys) pulling.pulls.push_back(pull);  // values lie as keys do
    }
  }
  return pulling;
}

Status choose_pulls(Setting& setting, const Device& device, Selection& forward) {
  if (setting.forward != "all_gather") return {};
  if (forward.provider == nullptr) return {};
  LONGSPAN_TRY(const std::optional<Decline> decline,
               pull_decline(setting, *forward.provider, device));
  setting.pulls = !decline;
  forward.strategy_reason += decline
                                 ? fmt::format("; its launch does not pull: {}", decline->detail)
                                 : "; its launch pulls keys and values while it computes";
  return {};
}

}  // namespace longspan
