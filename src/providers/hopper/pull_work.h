// How a launch brings keys and values of other ranks: units of bytes to move, and where each key
// block of a tile is read. Pure: no device is needed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"
#include "providers/hopper/work.h"

namespace longspan::hopper {

/// Consecutive bytes of K or V. Loans are numbered as in PulledKeys; behind them stand own K and V.
struct alignas(16) PullUnit {
  int32_t loan = 0;  // even: K, odd: V
  int32_t piece = 0;
  int64_t src = 0, dst = 0;  // bytes into the loan, and into the gathered rows
  int32_t bytes = 0;
  bool operator==(const PullUnit&) const = default;
};

/// In which order a tile takes its key blocks: from `start` on, then those before it. Its block i
/// lies at row places[place + i] of own K and V, or, where that is negative, among the gathered
/// rows.
struct Turn {
  int32_t start = 0;
  int32_t place = 0;
  bool operator==(const Turn&) const = default;
};

/// With which key block a block of queries begins its tile's turn.
struct alignas(16) Start {
  int32_t block = 0;
  int32_t row = -1;    // of own K and V where that block lies, or negative
  int32_t place = -1;  // as in Turn; negative where it sees no keys
  bool operator==(const Start&) const = default;
};

/// Gathered rows are awaited in pieces of 2^piece_log2, kMostPieces at most.
inline constexpr int kMostPieces = 32;

struct PullWork {
  std::vector<PullUnit> units;   // those that tiles need first come first
  std::vector<int32_t> arrived;  // of each piece: its units
  std::vector<Turn> turns;       // of the tiles that have queries
  std::vector<int32_t> places;
  int piece_log2 = 0;
};

/// What units are cut by.
struct PullShape {
  int64_t keys = 0;  // of a key block
  int64_t unit_bytes = 0;
  int64_t row_bytes_k = 0, row_bytes_v = 0;
  int lenders = 0;
};

/// Own rows are moved only where a key block holds others beside them.
PullWork make_pull_work(std::span<const PlacedTile> tiles, std::span<const Pull> pulls,
                        const PullShape& shape);

/// Of a block that sees these key blocks.
Start start_of(const PullWork& work, const Block& block, const Range& seen);

}  // namespace longspan::hopper
