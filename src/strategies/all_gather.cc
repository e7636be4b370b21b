// Every rank fetches all keys and values that its queries see in one exchange; partial dK and dV go
// home in one other.
#include "strategies/emit.h"
#include "strategies/list.h"

namespace longspan {
namespace {

Verdict consider(const Setting& setting, Direction) {
  if (auto decline = needs_known_lengths(setting.problem)) return *decline;
  if (auto decline = varies_with_ranks(setting, "all_gather", setting.topology.ranks()))
    return *decline;
  return Offer{"all visible keys and values at once; memory grows with the whole sequence"};
}

Result<Schedule> build(const Setting& setting, Direction direction, int rank) {
  return emit(setting, direction, rank, "all_gather",
              {.ways = 1, .rings = setting.topology.ranks(), .gather = true});
}

}  // namespace

const Strategy kAllGather = {"all_gather", "every rank fetches all keys and values it sees at once",
                             consider, build};

}  // namespace longspan
