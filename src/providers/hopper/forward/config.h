// Shapes of the forward kernels up to 256 columns, and where their shared memory goes.
#pragma once

#include <cstdint>

namespace longspan::hopper {

/// Bytes of each of four units, of KiB that stages leave over.
constexpr int pull_unit_bytes(int stages_kib) {
  const int left = 225 - stages_kib;
  return left >= 32 ? 8192 : left >= 8 ? 2048 : 0;
}

/// GROUPS warpgroups of 64 queries each against blocks of KEYS keys. MERGES: O and LSE are FP32 and
/// merged into what is there; else O is whole and of type T. PULLS: the launch brings keys and
/// values of other ranks while it computes.
template <class T, int DIM, int KEYS, int GROUPS, int Q_BUFFERS, bool PING_PONG, bool EARLY_PACK,
          bool MERGES, bool PULLS = false>
struct Config {
  using Element = T;
  static constexpr int kDim = DIM, kKeys = KEYS, kGroups = GROUPS, kQBuffers = Q_BUFFERS;
  /// Warpgroups take turns on the tensor cores, so that the others' softmax runs meanwhile.
  static constexpr bool kPingPong = PING_PONG;
  /// P has two sets of registers: it is packed while the product with the last one may still run.
  static constexpr bool kEarlyPack = EARLY_PACK;
  static constexpr bool kMerges = MERGES;
  static constexpr bool kPulls = PULLS;
  /// With one Q buffer O goes from registers to memory, and Q is free after a tile's last scores.
  static constexpr bool kDirect = Q_BUFFERS == 1;
  static constexpr int kRows = 64 * GROUPS, kThreads = 128 * (GROUPS + 1);
  static constexpr int kColumnBlocks = (DIM + 63) / 64;  // a row of one is 128 bytes
  static constexpr int kQGroupBytes = 64 * kColumnBlocks * 128, kQBytes = GROUPS * kQGroupBytes;
  static constexpr int kKeyBlockBytes = KEYS * 128, kStageBytes = kColumnBlocks * kKeyBlockBytes;
  static constexpr int kStagesBytes = Q_BUFFERS * kQBytes + 4 * kStageBytes;
  /// Bytes on their way from other ranks, in shared memory that is left over; where nothing is, in
  /// registers.
  static constexpr int kPullUnits = 4, kPullBytes = pull_unit_bytes(kStagesBytes / 1024);
  static constexpr int kSharedBytes = kStagesBytes + 1024 + (PULLS ? kPullUnits * kPullBytes : 0);
  // NOTE: ptxas gives each branch its own limit: watch spills and C7512, C7515 when these change.
  static constexpr int kConsumerRegisters = GROUPS == 2 ? 232 : 160;
  static constexpr int kProducerRegisters = GROUPS == 2 ? 40 : 32;
  static_assert(GROUPS == 2 || GROUPS == 3);
  static_assert(kSharedBytes + 256 <= 232448, "more than a block of sm_90 may have");
};

}  // namespace longspan::hopper
