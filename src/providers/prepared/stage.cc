#include <algorithm>
#include <utility>

#include "providers/prepared/pieces.h"
#include "providers/prepared/plan.h"
#include "providers/rows/blanks.h"
#include "providers/rows/tables.h"
#include "providers/sm90.h"

namespace longspan::prepared {
namespace {

using rows::Entry;
using rows::Tables;

std::vector<int32_t> counts(std::span<const Entry> entries, int64_t Entry::*rows) {
  std::vector<int32_t> result;
  for (const Entry& e : entries) result.push_back(static_cast<int32_t>(e.*rows));
  return result;
}

std::vector<int32_t> cumulative(std::span<const Entry> entries, int64_t Entry::*rows) {
  std::vector<int32_t> result = {0};
  for (const int32_t count : counts(entries, rows)) result.push_back(result.back() + count);
  return result;
}

/// Where the tables of a launch begin.
struct Place {
  size_t entries = 0, q = 0, k = 0;
};

Place write(const Launch& launch, Tables& tables) {
  Place place{.entries = tables.append_entries(launch.entries)};
  const auto values = [&](int64_t Entry::*rows) {
    return launch.packed ? cumulative(launch.entries, rows) : counts(launch.entries, rows);
  };
  place.q = tables.append(values(&Entry::nq));
  place.k = tables.append(values(&Entry::nk));
  return place;
}

Operand table(char* data, const Launch& launch) {
  const auto entries = static_cast<int64_t>(launch.entries.size());
  return {.data = data,
          .element = Element::kI32,
          .rank = 1,
          .shape = {entries + (launch.packed ? 1 : 0)},
          .strides = {1}};
}

StagedLaunch staged(const Launch& launch, const Place& place, char* base) {
  StagedLaunch result{.launch = launch,
                      .list = rows::list_of(launch.entries, base + place.entries)};
  const Operand q = table(base + place.q, launch);
  const Operand k = table(base + place.k, launch);
  if (launch.packed) {
    result.cumulative_q = q;
    result.cumulative_k = k;
  } else if (launch.kernel->manifest().serves.lengths) {
    result.lengths_q = q;
    result.lengths_k = k;
  }
  return result;
}

/// Entries of queries alone, then of keys alone, that whole results need blank.
std::vector<Entry> blank_entries(const TileProblem& p, std::span<const PlacedTile> tiles,
                                 std::span<const Launch> launches, bool adds_keys) {
  std::vector<Entry> written;
  for (const Launch& launch : launches) {
    written.insert(written.end(), launch.entries.begin(), launch.entries.end());
  }
  rows::Blanks blanks = rows::blanks_of(p, tiles, written);
  if (adds_keys) blanks.k = rows::blanks_of(p, tiles, {}).k;
  return rows::entries_of(blanks);
}

}  // namespace

Result<std::shared_ptr<const Staged>> PreparedPlan::stage(std::span<const PlacedTile> tiles) const {
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_CHECK_OK(sm90::inside(problem_, tiles, "prepared"));
  const bool windows = builds_.find({.shape = Shape::kWindow}) != nullptr;
  const std::vector<Piece> pieces = make_pieces(problem_, tiles, windows);
  LONGSPAN_TRY(const std::vector<Launch> launches, make_launches(problem_, builds_, pieces));
  const bool whole = problem_.features.whole;
  const bool adds_keys = whole && problem_.direction == Direction::kBackward &&
                         std::ranges::any_of(pieces, [](const Piece& p) { return p.part; });
  Tables tables;
  std::vector<Place> places;
  for (const Launch& launch : launches) places.push_back(write(launch, tables));
  std::vector<Entry> blanks;
  if (whole) blanks = blank_entries(problem_, tiles, launches, adds_keys);
  const size_t blank_place = tables.append_entries(blanks);

  auto result = std::make_shared<StagedLaunches>();
  result->tiles.assign(tiles.begin(), tiles.end());
  LONGSPAN_TRY(result->tables, cuda::Memory::copy_of(tables.bytes().data(), tables.bytes().size()));
  auto* const base = static_cast<char*>(result->tables.data());
  result->blanks = rows::list_of(blanks, base + blank_place);
  for (size_t i = 0; i < launches.size(); ++i) {
    result->launches.push_back(staged(launches[i], places[i], base));
    result->launches.back().adds_keys = adds_keys;
  }
  return std::shared_ptr<const Staged>(std::move(result));
}

}  // namespace longspan::prepared
