// Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011).
#pragma once

#include <array>
#include <cstdint>

#include "base/host_device.h"

namespace longspan {

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;

/// Plain members: device code cannot index a std::array.
struct PhiloxWords {
  uint32_t x = 0, y = 0, z = 0, w = 0;
};

LONGSPAN_HOST_DEVICE inline PhiloxWords philox4x32(PhiloxWords counter, uint32_t key0,
                                                   uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t first = uint64_t{kPhiloxMultiplier0} * counter.x;
    const uint64_t second = uint64_t{kPhiloxMultiplier1} * counter.z;
    counter = {static_cast<uint32_t>(second >> 32) ^ counter.y ^ key0,
               static_cast<uint32_t>(second), static_cast<uint32_t>(first >> 32) ^ counter.w ^ key1,
               static_cast<uint32_t>(first)};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return counter;
}

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  const PhiloxWords words =
      philox4x32(PhiloxWords{counter[0], counter[1], counter[2], counter[3]}, key[0], key[1]);
  return {words.x, words.y, words.z, words.w};
}

}  // namespace longspan
