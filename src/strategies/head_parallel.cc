// Backward only, after a forward in sequence layout: one packed exchange of q, k, v, dout, LSE and
// delta to head layout, a local backward, one exchange of the gradients back.
#include "strategies/emit.h"
#include "strategies/list.h"

namespace longspan {
namespace {

Verdict consider(const Setting& setting, Direction direction) {
  if (direction == Direction::kForward) {
    return Decline{DeclineCode::kDirection, "backward only; use all_to_all forward"};
  }
  if (auto decline = needs_known_lengths(setting.problem)) return *decline;
  return Offer{"one packed exchange to head layout, one back"};
}

Result<Schedule> build(const Setting& setting, Direction direction, int rank) {
  if (direction == Direction::kForward) {
    return Error{ErrorCode::kUnsupported, "head_parallel is backward only; use all_to_all forward",
                 "head_parallel"};
  }
  return emit(setting, direction, rank, "head_parallel",
              {.ways = setting.topology.ranks(), .rings = 1});
}

}  // namespace

const Strategy kHeadParallel = {"head_parallel",
                                "backward only: one packed exchange to head layout and one back",
                                consider, build};

}  // namespace longspan
