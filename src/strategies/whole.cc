// Where attend steps see all keys of a row at once, and write its results.
#include <algorithm>
#include <utility>

#include "strategies/emit.h"

namespace longspan {
namespace {

/// Keys that a query sees on average from which O counts as small beside v.
constexpr int64_t kLongRow = 64;

bool has_long_rows(const Problem& problem) {
  int64_t queries = 0;
  for (const Sequence& sequence : problem.lengths.sequences) queries += sequence.q_length;
  return problem.visible_pairs() >= kLongRow * queries;
}

/// The rows of each tile, in order of rows.
std::vector<std::pair<int64_t, int64_t>> rows_of(const std::vector<PlacedTile>& tiles, bool keys) {
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (const PlacedTile& t : tiles) {
    const int64_t begin = keys ? t.k_row : t.q_row;
    rows.emplace_back(begin, begin + (keys ? t.tile.k : t.tile.q).size());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

bool are_apart(const std::vector<PlacedTile>& tiles, bool keys) {
  const auto rows = rows_of(tiles, keys);
  return std::adjacent_find(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
           return b.first < a.second;
         }) == rows.end();
}

}  // namespace

bool keeps_exact_o(const Setting& setting) {
  if (size_of(setting.problem.dtype) != 2 || setting.backward == kNoStrategy) return false;
  return !setting.whole || !has_long_rows(setting.problem);
}

bool writes_whole_o(const Emission& e) {
  return e.setting.whole && (e.arrangement.rings == 1 || e.gathers) &&
         e.problem.sink == Sink::kNone && !keeps_exact_o(e.setting) &&
         are_apart(e.own.tiles, false);
}

bool writes_whole_gradients(const Emission& e) {
  return e.direction == Direction::kBackward && e.whole_o &&
         !shares_kv_heads(e.problem, e.arrangement.ways) && are_apart(e.own.tiles, true);
}

std::vector<Fill> unattended(const Emission& e, BufferId buffer) {
  const bool keys = is_key_side(e.builder.buffer(buffer).quantity);
  const auto attended = rows_of(e.own.tiles, keys);
  std::vector<Fill> fills;
  auto next = attended.begin();
  for (const Run& run : (keys ? e.k : e.q).runs) {
    int64_t row = run.row;
    const int64_t end = run.row + run.valid;
    while (row < end) {
      while (next != attended.end() && next->second <= row) ++next;
      const int64_t stop = next == attended.end() ? end : std::min(end, next->first);
      if (row < stop) fills.push_back({buffer, row, stop - row});
      row = next == attended.end() ? end : std::max(stop, std::min(end, next->second));
    }
  }
  return fills;
}

}  // namespace longspan
