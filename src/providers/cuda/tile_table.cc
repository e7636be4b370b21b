#include "providers/cuda/tile_table.h"

#include <algorithm>

namespace longspan::cuda {
namespace {

/// The wave of each tile: one more than the last of the earlier tiles that share a row with it.
std::vector<size_t> wave_numbers(std::span<const PlacedTile> tiles, Written written) {
  std::vector<int64_t> edges;
  for (const PlacedTile& t : tiles) {
    const Range rows = written_rows(t, written);
    edges.push_back(rows.first);
    edges.push_back(rows.last);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  // Waves that have taken the rows from an edge to the next one.
  std::vector<size_t> taken(edges.size());
  std::vector<size_t> numbers;
  for (const PlacedTile& t : tiles) {
    const Range rows = written_rows(t, written);
    const auto at = [&](int64_t edge) {
      return taken.begin() + (std::lower_bound(edges.begin(), edges.end(), edge) - edges.begin());
    };
    const size_t number = *std::max_element(at(rows.first), at(rows.last));
    std::fill(at(rows.first), at(rows.last), number + 1);
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

TableTile table_tile(const PlacedTile& t) {
  const Tile& tile = t.tile;
  return {.q_row = t.q_row,
          .k_row = t.k_row,
          .queries = tile.q.size(),
          .keys = tile.k.size(),
          .lo = std::max(tile.band.lo, -kUnbounded),
          .hi = std::min(tile.band.hi, kUnbounded),
          .q_begin = tile.q.begin,
          .q_stride = tile.q.stride,
          .k_begin = tile.k.begin,
          .k_stride = tile.k.stride,
          .sequence = tile.sequence,
          .shift = t.shift};
}

Range written_rows(const PlacedTile& t, Written written) {
  return written == Written::kQueryRows ? Range{t.q_row, t.q_row + t.tile.q.size()}
                                        : Range{t.k_row, t.k_row + t.tile.k.size()};
}

TileTable make_tile_table(std::span<const PlacedTile> tiles, Written written) {
  std::vector<PlacedTile> visible;
  std::copy_if(tiles.begin(), tiles.end(), std::back_inserter(visible),
               [](const PlacedTile& t) { return !empty(t.tile); });
  const std::vector<size_t> numbers = wave_numbers(visible, written);
  TileTable table;
  const size_t waves = numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end()) + 1;
  table.waves.resize(waves);
  for (const size_t number : numbers) ++table.waves[number].count;
  for (size_t i = 1; i < waves; ++i) {
    table.waves[i].first = table.waves[i - 1].first + table.waves[i - 1].count;
  }
  table.tiles.resize(visible.size());
  table.before.resize(visible.size());
  std::vector<size_t> filled(waves);
  for (size_t i = 0; i < visible.size(); ++i) {
    TileWave& wave = table.waves[numbers[i]];
    const size_t place = wave.first + filled[numbers[i]]++;
    const Range rows = written_rows(visible[i], written);
    table.tiles[place] = table_tile(visible[i]);
    table.before[place] = wave.rows;
    wave.rows += rows.last - rows.first;
  }
  return table;
}

}  // namespace longspan::cuda
