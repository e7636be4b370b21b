// What ranks tell each other before they join NCCL, so that what cannot work fails on all of them
// with a reason instead of a hang.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/nccl/handle.h"

namespace longspan::comm {

struct NcclCard {
  bool ready = false;  // this rank found NCCL and its device
  int version = 0;     // of its NCCL
  std::array<uint64_t, 2> gpu = {};
  NcclIdWords id = {};  // of rank 0; zeros of the others
};

inline constexpr size_t kCardWords = 4 + std::tuple_size_v<NcclIdWords>;

std::array<uint64_t, kCardWords> words_of(const NcclCard& card);

/// From the words of all ranks in order of ranks. peer_lost when a rank is not ready;
/// invalid_argument when two ranks have one GPU, or other versions of NCCL.
Result<NcclIdWords> agreed_id(std::span<const uint64_t> words);

}  // namespace longspan::comm
