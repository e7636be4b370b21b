#include <algorithm>
#include <cstring>
#include <utility>

#include "providers/cudnn/blanks.h"
#include "providers/prepared/pieces.h"
#include "providers/prepared/plan.h"
#include "providers/sm90.h"

namespace longspan::prepared {
namespace {

using cudnn::DeviceEntry;
using cudnn::Entry;

/// Tables for the device, one behind the other.
class Tables {
 public:
  template <class T>
  size_t append(std::span<const T> values) {
    constexpr size_t kAlignment = 16;
    const size_t place = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(place + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes_.data() + place, values.data(), values.size_bytes());
    return place;
  }
  size_t append(std::span<const Entry> entries) {
    std::vector<DeviceEntry> table;
    DeviceEntry next;
    for (const Entry& e : entries) {
      next = {e.q_row, e.k_row, next.q_begin + next.nq, next.k_begin + next.nk, e.nq, e.nk};
      table.push_back(next);
    }
    return append<DeviceEntry>(table);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

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
  Place place{.entries = tables.append(launch.entries)};
  const auto values = [&](int64_t Entry::*rows) {
    return launch.packed ? cumulative(launch.entries, rows) : counts(launch.entries, rows);
  };
  place.q = tables.append<int32_t>(values(&Entry::nq));
  place.k = tables.append<int32_t>(values(&Entry::nk));
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

cudnn::EntryList list_of(std::span<const Entry> entries, const char* table) {
  cudnn::EntryList list{.entries = reinterpret_cast<const DeviceEntry*>(table),
                        .count = static_cast<int64_t>(entries.size())};
  for (const Entry& e : entries) {
    list.rows_q += e.nq;
    list.rows_k += e.nk;
  }
  return list;
}

StagedLaunch staged(const Launch& launch, const Place& place, char* base) {
  StagedLaunch result{.launch = launch, .list = list_of(launch.entries, base + place.entries)};
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
  std::vector<cudnn::Group> groups;
  for (const Launch& launch : launches) groups.push_back({.entries = launch.entries});
  cudnn::Blanks blanks = cudnn::blanks_of(p, tiles, groups);
  if (adds_keys) blanks.k = cudnn::blanks_of(p, tiles, {}).k;
  std::vector<Entry> entries;
  for (const Range& r : blanks.q) entries.push_back({.q_row = r.first, .nq = r.last - r.first});
  for (const Range& r : blanks.k) entries.push_back({.k_row = r.first, .nk = r.last - r.first});
  return entries;
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
  const size_t blank_place = tables.append(blanks);

  auto result = std::make_shared<StagedLaunches>();
  result->tiles.assign(tiles.begin(), tiles.end());
  LONGSPAN_TRY(result->tables, cuda::Memory::copy_of(tables.bytes().data(), tables.bytes().size()));
  auto* const base = static_cast<char*>(result->tables.data());
  result->blanks = list_of(blanks, base + blank_place);
  for (size_t i = 0; i < launches.size(); ++i) {
    result->launches.push_back(staged(launches[i], places[i], base));
    result->launches.back().adds_keys = adds_keys;
  }
  return std::shared_ptr<const Staged>(std::move(result));
}

}  // namespace longspan::prepared
