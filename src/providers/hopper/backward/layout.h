// What the backward kernels take from lists on the device, and how P and dS lie in scratch.
//
// Scratch consists of blocks of 64 queries x 64 keys, 8 KiB each, in the byte order in which shared
// memory holds them (rows of 128 bytes, 128-byte swizzle): they are copied as they are. Only units
// that see something have blocks.
#pragma once

#include <cstdint>

namespace longspan::hopper {

/// What a block of threads recomputes at a time: a unit of scores.
inline constexpr int kUnitQueries = 128, kUnitKeys = 256;
inline constexpr int kBlockSide = 64, kBlockBytes = kBlockSide * kBlockSide * 2;
/// Blocks of a unit in a line of 64 queries, and in all.
inline constexpr int kUnitColumns = kUnitKeys / kBlockSide;
inline constexpr int kUnitBlocks = kUnitQueries / kBlockSide * kUnitColumns;
/// Bytes of P, or of dS, of a unit.
inline constexpr int64_t kUnitBytes = int64_t{kUnitBlocks} * kBlockBytes;
/// Rows of gradients that a block of threads computes at a time.
inline constexpr int kGradientRows = 128;

/// Steps of 64 columns that the kernel of scores makes at least.
inline constexpr int kLeastStepsOfScores = 3, kLeastStepsOfDp = 2;

/// Registers of a block of 384 threads, 168 each, in units of one for each thread of a warpgroup:
/// two consumer warpgroups and the producer share them. A warpgroup that asked for more than the
/// others leave would wait for ever.
inline constexpr int kBlockRegisters = 3 * 168;

/// A rectangle of a tile. Rows are those of the views.
struct Region {
  int32_t q_row = 0, k_row = 0;
  int32_t queries = 0, keys = 0;
  int32_t lo = 0, hi = 0;  // query i sees key j of the region when lo <= j - i <= hi
  int32_t line = 0;        // its first one
  int32_t unused = 0;
};

/// Where the units of 128 queries lie: block (r, c), of the 64 queries from 64 r and the 64 keys of
/// the region from 64 c on, is number first + r * pitch + c of a head's.
struct Line {
  int32_t first = 0, pitch = 0;
};

/// A unit of scores: 128 queries from 128 `line`, 256 keys from 256 `column` on.
struct ScoreItem {
  int32_t region = 0, line = 0, column = 0, unused = 0;
};

enum class Gradient : int32_t { kDq, kDk, kDv };
inline constexpr int kGradients = 3;

/// 128 rows of a gradient, as many columns as the kernel has. Heads count from those of the launch.
struct alignas(16) GradientItem {
  int32_t region = 0;
  Gradient gradient = Gradient::kDq;
  int32_t tile = 0;                       // rows from 128 `tile` of the region on
  int32_t part = 0;                       // of the columns
  int32_t first = 0, last = 0;            // blocks of 64 rows of the other side that are summed
  int32_t head = 0;                       // query head of dQ, key head of dK and dV
  int32_t first_head = 0, last_head = 0;  // query heads that are summed
  // Blocks are summed window after window, each from block `start` of it on, around its end.
  int32_t window = 1, start = 0;
  bool up = true;     // or down
  bool adds = false;  // to the FP32 rows that are there
  bool ends = false;  // in the type of the operands; else the sum stays FP32
  // Parts of a sum of dV add their rows one after the other: number `sum_part` of `sum_parts`, of
  // sum `turn` of the launch.
  int32_t turn = 0, sum_part = 0, sum_parts = 1;
  bool operator==(const GradientItem&) const = default;
};

}  // namespace longspan::hopper
