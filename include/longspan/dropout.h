// Which pairs dropout drops: the same on any number of ranks, with any strategy and provider.
#pragma once

#include <array>
#include <cstdint>

#include "longspan/modification.h"

namespace longspan {

/// A pair is dropped iff the first word of Philox4x32-10 is below probability 2^32. The key is the
/// 64-bit number seed + offset * 0x9E3779B97F4A7C15 (mod 2^64), low word first; the counter is
/// (sequence, query head, q, k), low 32 bits each, tokens counted inside their sequence.
struct Dropout {
  double probability = 0;  // of dropping, in [0, 1); kept values are multiplied by 1 / (1 - it)
  uint64_t seed = 0;
  uint64_t offset = 0;
  /// On CUDA devices: two words there, low one first, read when the call runs in the place of the
  /// key that follows from seed and offset, so that captured graphs replay with other keys.
  const uint32_t* device_key = nullptr;

  std::array<uint32_t, 2> key() const {
    const uint64_t both = seed + offset * 0x9E3779B97F4A7C15u;
    return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32)};
  }
  /// Words below this are dropped.
  uint64_t threshold() const;
  double keep_factor() const { return 1 / (1 - probability); }
  bool keeps(const ScoreIndex& index) const;

  bool operator==(const Dropout&) const = default;
};

}  // namespace longspan
