// The tiles of a call in the order in which kernels take them. Pure: no device is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"

namespace longspan::cuda {

/// A PlacedTile as kernels read it. Any row number can be added to the edges of the band.
struct TableTile {
  int64_t q_row = 0, k_row = 0;
  int64_t queries = 0, keys = 0;      // rows
  int64_t lo = 0, hi = 0;             // of the band
  int64_t q_begin = 0, q_stride = 1;  // tokens inside the sequence
  int64_t k_begin = 0, k_stride = 1;
  int64_t sequence = 0;
  int64_t shift = 0;
};

/// Consecutive tiles of a table, no two of which share a written row: one launch.
struct TileWave {
  size_t first = 0;
  size_t count = 0;
  int64_t rows = 0;  // written ones
};

/// Which rows of a tile the kernel writes.
enum class Written { kQueryRows, kKeyRows };

Range written_rows(const PlacedTile& tile, Written written);

/// A tile as it stands in a table.
TableTile table_tile(const PlacedTile& tile);

struct TileTable {
  std::vector<TableTile> tiles;  // wave after wave
  std::vector<int64_t> before;   // of each tile: written rows of its wave before it
  std::vector<TileWave> waves;
};

/// Leaves out tiles without visible pairs. Tiles that share a written row stay in their order, and
/// each stands in the first wave that this allows.
TileTable make_tile_table(std::span<const PlacedTile> tiles, Written written);

}  // namespace longspan::cuda
