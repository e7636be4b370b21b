// Shapes of the forward kernels up to 256 columns, and where their shared memory goes.
#pragma once

#include <cstdint>

namespace longspan::hopper {

/// Bytes that a launch moves from another rank at a time, as a rule.
constexpr int kPullUnitBytes = 8192;

/// Bytes of each of four parts of units, of KiB that stages leave over.
constexpr int pull_part_bytes(int stages_kib) {
  const int left = 225 - stages_kib;
  return left >= 32 ? 8192 : left >= 16 ? 4096 : left >= 8 ? 2048 : 0;
}

/// How a kernel cuts its work.
struct Cut {
  int dim, dim_v;  // columns of Q and K, and of V and O
  int keys;        // of a step
  int groups;      // warpgroups, of 64 queries each
  int q_buffers;   // one: O goes from registers to memory, and Q is free after a tile's last scores
  bool ping_pong;  // warpgroups take turns on the tensor cores: the others' softmax runs meanwhile
  bool early_pack;  // P has two sets of registers: it is packed while the last P V may still run
  bool shares = false;  // query heads of one key head share a block's rows
};

/// MERGES: O and LSE are FP32 and merged into what is there; else O is whole and of type T. TERMS:
/// scores have terms, or largest logits are asked for. PULLS: the launch brings keys and values of
/// other ranks while it computes.
template <class T, Cut CUT, bool MERGES, bool TERMS, bool PULLS = false>
struct Config {
  using Element = T;
  static constexpr int kDim = CUT.dim, kDimV = CUT.dim_v, kKeys = CUT.keys, kGroups = CUT.groups;
  static constexpr int kQBuffers = CUT.q_buffers;
  static constexpr bool kPingPong = CUT.ping_pong, kEarlyPack = CUT.early_pack;
  static constexpr bool kMerges = MERGES, kTerms = TERMS, kPulls = PULLS, kShares = CUT.shares;
  /// Tiles begin at a key block in their middle: the one that first_blocks says.
  static constexpr bool kTurns = kPulls || kShares;
  static constexpr bool kDirect = kQBuffers == 1;
  static constexpr bool kAnnounces = kShares && !kDirect;  // a spare warp does: announcer.cuh
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * (kGroups + 1);
  // A row of a block of 64 columns is 128 bytes.
  static constexpr int kColumnBlocks = (kDim + 63) / 64, kColumnBlocksV = (kDimV + 63) / 64;
  static constexpr int kQGroupBytes = 64 * kColumnBlocks * 128, kQBytes = kGroups * kQGroupBytes;
  static constexpr int kKeyBlockBytes = kKeys * 128;
  static constexpr int kStageBytes = kColumnBlocks * kKeyBlockBytes;  // of K
  static constexpr int kStageBytesV = kColumnBlocksV * kKeyBlockBytes;
  static constexpr int kStagesBytes = kQBuffers * kQBytes + 2 * kStageBytes + 2 * kStageBytesV;
  /// Bytes on their way from other ranks, in shared memory that is left over; where nothing is, in
  /// registers.
  static constexpr int kPullParts = 4, kPartBytes = pull_part_bytes(kStagesBytes / 1024);
  static constexpr int kPullers = kPartBytes > 0 ? 1 : 2;  // threads, or else warps
  static constexpr int kSharedBytes = kStagesBytes + 1024 + (PULLS ? kPullParts * kPartBytes : 0);
  // NOTE: ptxas gives each branch its own limit: watch spills and C7512, C7515 when these change.
  static constexpr int kConsumerRegisters = kGroups == 2 ? 232 : 160;
  static constexpr int kProducerRegisters = kGroups == 2 ? 40 : 32;
  // Loads of carried O, of four columns each; twice as many are on their way. Two sets of P leave
  // fewer registers.
  static constexpr int kCarryBatch = kEarlyPack ? 6 : 8;
  static_assert(kGroups == 2 || kGroups == 3);
  static_assert(kDirect || kColumnBlocksV <= kColumnBlocks, "O is staged in Q's buffer");
  static_assert(kSharedBytes + 256 <= 232448, "more than a block of sm_90 may have");
};

}  // namespace longspan::hopper
