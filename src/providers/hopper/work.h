// The tiles of a call as blocks of queries, in the order in which a kernel takes them. Pure: no
// device is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"

namespace longspan::hopper {

/// Up to as many queries of a tile as a block of threads computes. Rows are those of the views.
struct alignas(16) Block {
  int32_t q_row = 0, k_row = 0;   // of the tile
  int32_t first = 0;              // query of the tile that the block begins with
  int32_t queries = 0, keys = 0;  // of the tile
  int32_t lo = 0, hi = 0;         // query i sees key j of the tile when lo <= j - i <= hi
  int32_t tile = 0;               // number in Work::tokens
  bool operator==(const Block&) const = default;
};

/// Where the tokens of a tile lie in their sequence; low words of their numbers.
struct alignas(16) Tokens {
  int64_t distance = 0;  // q + shift - k of the first query and the first key
  uint32_t q_begin = 0, k_begin = 0;
  int32_t q_stride = 1, k_stride = 1;
  uint32_t sequence = 0;
  bool operator==(const Tokens&) const = default;
};

/// Consecutive blocks whose query rows are disjoint: one launch.
struct Wave {
  size_t first = 0;
  size_t count = 0;
  int64_t keys = 0;   // rows of keys of all its tiles
  bool even = false;  // whether blocks cost about the same
  bool operator==(const Wave&) const = default;
};

/// An edge of a band as kernels take it: any row can be added to it.
int32_t edge(int64_t value);

struct Work {
  std::vector<Block> blocks;  // wave after wave
  std::vector<Wave> waves;
  std::vector<Tokens> tokens;  // of the tiles
};

/// Key blocks of `keys` keys that a block of `rows` queries sees.
Range key_blocks_seen(const Block& block, int64_t rows, int64_t keys);

/// How many it reads, one at least.
int64_t key_blocks(const Block& block, int64_t rows, int64_t keys);

/// Key blocks that blocks of `rows` queries of all tiles read.
int64_t key_steps(std::span<const PlacedTile> tiles, int64_t rows, int64_t keys);

/// Blocks of `rows` queries, to be computed against blocks of `keys` keys. Tiles that share query
/// rows stay in their order, each in the first wave that this allows; blocks of an uneven wave are
/// sorted, the longest first. Tiles without visible pairs are left out unless results are `whole`.
Work make_work(std::span<const PlacedTile> tiles, bool whole, int64_t rows, int64_t keys);

}  // namespace longspan::hopper
