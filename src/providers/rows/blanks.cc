#include "providers/rows/blanks.h"

#include <algorithm>
#include <cstdint>

namespace longspan::rows {
namespace {

void sort(std::vector<Range>& ranges) {
  std::ranges::sort(ranges, {}, [](const Range& r) { return r.first; });
}

std::vector<Range> rows_of_tiles(std::span<const PlacedTile> tiles, bool keys) {
  std::vector<Range> rows;
  for (const PlacedTile& t : tiles) {
    const int64_t first = keys ? t.k_row : t.q_row;
    const int64_t count = keys ? t.tile.k.size() : t.tile.q.size();
    if (count > 0) rows.push_back({first, first + count});
  }
  sort(rows);
  return rows;
}

std::vector<Range> rows_of_entries(std::span<const Entry> entries, bool keys) {
  std::vector<Range> rows;
  for (const Entry& e : entries) {
    rows.push_back(keys ? Range{e.k_row, e.k_row + e.nk} : Range{e.q_row, e.q_row + e.nq});
  }
  sort(rows);
  return rows;
}

/// What of `all` no range of `covered` has. Both ascend and are disjoint in themselves.
std::vector<Range> rest(const std::vector<Range>& all, const std::vector<Range>& covered) {
  std::vector<Range> result;
  size_t next = 0;
  for (const Range& rows : all) {
    int64_t first = rows.first;
    for (; next < covered.size() && covered[next].first < rows.last; ++next) {
      if (covered[next].first > first) result.push_back({first, covered[next].first});
      first = covered[next].last;
    }
    if (first < rows.last) result.push_back({first, rows.last});
  }
  return result;
}

}  // namespace

Blanks blanks_of(const TileProblem& problem, std::span<const PlacedTile> tiles,
                 std::span<const Entry> written, bool all_queries) {
  const auto blank = [&](bool keys, bool all) {
    const std::vector<Range> rows = rows_of_tiles(tiles, keys);
    return all ? rows : rest(rows, rows_of_entries(written, keys));
  };
  Blanks result{.q = blank(false, all_queries)};
  if (problem.direction == Direction::kForward) return result;
  result.k = blank(true, key_heads(problem) < problem.heads_kv);
  return result;
}

std::vector<Entry> entries_of(const Blanks& blanks) {
  std::vector<Entry> entries;
  for (const Range& r : blanks.q) entries.push_back({.q_row = r.first, .nq = r.last - r.first});
  for (const Range& r : blanks.k) entries.push_back({.k_row = r.first, .nk = r.last - r.first});
  return entries;
}

}  // namespace longspan::rows
