// Keys and values visit every rank that sees them, one rank at a time, while the tiles of the one
// before are computed.
#include "strategies/emit.h"
#include "strategies/list.h"

namespace longspan {
namespace {

Verdict consider(const Setting& setting, Direction) {
  if (auto decline = needs_known_lengths(setting.problem)) return *decline;
  if (auto decline = varies_with_ranks(setting, "ring", setting.topology.ranks())) return *decline;
  return Offer{"keys and values of one other rank at a time, overlapped with the tiles"};
}

Result<Schedule> build(const Setting& setting, Direction direction, int rank) {
  return emit(setting, direction, rank, "ring", {.ways = 1, .rings = setting.topology.ranks()});
}

}  // namespace

const Strategy kRing = {"ring", "keys and values visit the ranks that see them, one at a time",
                        consider, build};

}  // namespace longspan
