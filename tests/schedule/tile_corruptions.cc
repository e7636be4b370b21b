#include <algorithm>
#include <utility>

#include "schedule/spots.h"

namespace longspan::test {
namespace {

bool duplicate_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  spot.at().parts[spot.part].tiles.push_back(tile_at(spot));
  return true;
}

bool dropped_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  Part& part = spot.at().parts[spot.part];
  take_out(part.tiles, spot.index);
  if (part.tiles.empty()) take_out(spot.at().parts, spot.part);
  if (spot.at().parts.empty()) remove_step(*spot.schedule, spot.step);
  return true;
}

bool misplaced_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  PlacedTile& placed = tile_at(random.one_of(all));
  int64_t& row = random.chance(0.5) ? placed.q_row : placed.k_row;
  row += random.chance(0.5) ? 1 : -1;
  return true;
}

/// The tile is right in itself and lies where its tokens are, but they are others.
bool shifted_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  PlacedTile& placed = tile_at(random.one_of(all));
  Interval& k = placed.tile.k;
  k = {k.begin + k.stride, k.end + k.stride, k.stride};
  ++placed.k_row;
  if (placed.tile.band.lo > -kUnbounded) --placed.tile.band.lo;
  if (placed.tile.band.hi < kUnbounded) --placed.tile.band.hi;
  return true;
}

bool wrong_band(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  Tile& tile = tile_at(random.one_of(all)).tile;
  const int64_t right = area(tile);
  if (random.chance(0.5) && tile.band.hi < kUnbounded) {
    tile.band.hi += random.chance(0.5) ? 1 : -1;
  } else {
    tile.band.hi = tile.k.size() - 2;
  }
  return area(tile) != right;
}

bool wrong_group(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  TileProblem& asked = random.one_of(all).schedule->tiles;
  asked.group_offset += asked.group;
  return true;
}

}  // namespace

std::vector<Corruption> tile_corruptions() {
  return {
      {"duplicate_tile", duplicate_tile}, {"dropped_tile", dropped_tile},
      {"misplaced_tile", misplaced_tile}, {"shifted_tile", shifted_tile},
      {"wrong_band", wrong_band},         {"wrong_group", wrong_group},
  };
}

}  // namespace longspan::test
