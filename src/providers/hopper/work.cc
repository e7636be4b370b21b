#include "providers/hopper/work.h"

#include <algorithm>

#include "providers/cuda/tile_table.h"
#include "providers/hopper/tokens.h"

namespace longspan::hopper {
namespace {

using cuda::TableTile;
using cuda::TileTable;
using cuda::TileWave;

/// Rows count no further than this, so that edges of bands can be added to them.
constexpr int64_t kFar = int64_t{1} << 29;

/// Every tile with queries, as one wave: they share no rows.
TileTable whole_table(std::span<const PlacedTile> tiles) {
  TileTable table;
  for (const PlacedTile& t : tiles) {
    if (t.tile.q.size() == 0) continue;
    table.tiles.push_back(cuda::table_tile(t));
  }
  if (!table.tiles.empty()) table.waves = {{.count = table.tiles.size()}};
  return table;
}

Block block_of(const TableTile& t, size_t number, int64_t first) {
  return {.q_row = static_cast<int32_t>(t.q_row),
          .k_row = static_cast<int32_t>(t.k_row),
          .first = static_cast<int32_t>(first),
          .queries = static_cast<int32_t>(t.queries),
          .keys = static_cast<int32_t>(t.keys),
          .lo = edge(t.lo),
          .hi = edge(t.hi),
          .tile = static_cast<int32_t>(number)};
}

/// Keys that some query of the block sees.
Range seen_keys(const Block& b, int64_t rows) {
  const int64_t last_query = std::min<int64_t>(b.first + rows, b.queries) - 1;
  const int64_t first = std::max<int64_t>(int64_t{b.first} + b.lo, 0);
  const int64_t last = std::min<int64_t>(last_query + b.hi, b.keys - 1);
  return {first, std::max(first, last + 1)};
}

/// Appends the blocks of a wave of tiles.
void append(const TileTable& table, const TileWave& tiles, bool whole, int64_t rows, int64_t keys,
            Work& work) {
  Wave wave{.first = work.blocks.size()};
  for (size_t i = tiles.first; i < tiles.first + tiles.count; ++i) {
    const TableTile& t = table.tiles[i];
    wave.keys += t.keys;
    for (int64_t first = 0; first < t.queries; first += rows) {
      const Block block = block_of(t, i, first);
      const Range seen = seen_keys(block, rows);
      if (whole || seen.first < seen.last) work.blocks.push_back(block);
    }
  }
  wave.count = work.blocks.size() - wave.first;
  if (wave.count == 0) return;
  const auto begin = work.blocks.begin() + static_cast<std::ptrdiff_t>(wave.first);
  const auto cost = [&](const Block& b) { return key_blocks(b, rows, keys); };
  const auto [least, most] = std::minmax_element(
      begin, work.blocks.end(), [&](const Block& a, const Block& b) { return cost(a) < cost(b); });
  wave.even = 2 * (cost(*most) - cost(*least)) < cost(*most);
  if (!wave.even) {
    std::stable_sort(begin, work.blocks.end(),
                     [&](const Block& a, const Block& b) { return cost(a) > cost(b); });
  }
  work.waves.push_back(wave);
}

}  // namespace

int32_t edge(int64_t value) { return static_cast<int32_t>(std::clamp(value, -kFar, kFar)); }

Range key_blocks_seen(const Block& block, int64_t rows, int64_t keys) {
  const Range seen = seen_keys(block, rows);
  if (seen.first == seen.last) return {};
  return {seen.first / keys, (seen.last - 1) / keys + 1};
}

int64_t key_blocks(const Block& block, int64_t rows, int64_t keys) {
  const Range seen = key_blocks_seen(block, rows, keys);
  return std::max<int64_t>(seen.last - seen.first, 1);
}

int64_t key_steps(std::span<const PlacedTile> tiles, int64_t rows, int64_t keys) {
  int64_t steps = 0;
  for (const PlacedTile& placed : tiles) {
    const TableTile tile = cuda::table_tile(placed);
    for (int64_t first = 0; first < tile.queries; first += rows) {
      steps += key_blocks(block_of(tile, 0, first), rows, keys);
    }
  }
  return steps;
}

Work make_work(std::span<const PlacedTile> tiles, bool whole, int64_t rows, int64_t keys) {
  const TileTable table =
      whole ? whole_table(tiles) : cuda::make_tile_table(tiles, cuda::Written::kQueryRows);
  Work work;
  for (const TableTile& t : table.tiles) work.tokens.push_back(tokens_of(t));
  for (const TileWave& wave : table.waves) append(table, wave, whole, rows, keys, work);
  return work;
}

}  // namespace longspan::hopper
