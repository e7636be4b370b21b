// The checks of Communicator::start that every communicator makes before anything is posted.
#pragma once

#include <cstdint>
#include <span>

#include "longspan/communicator.h"

namespace longspan::comm {

/// exchange_words sends with this tag; callers' tags end at kLargestTag.
inline constexpr uint32_t kExchangeTag = kLargestTag + 1;

/// Agreement of all ranks before a communicator is split.
inline constexpr std::chrono::milliseconds kSplitDeadline{60000};

/// invalid_argument for a peer outside [0, size), a reserved tag, or bytes without memory;
/// unsupported for loans unless the communicator `lends`.
Status check_transfers(std::span<const Transfer> transfers, int size, const char* where,
                       bool lends = false);

}  // namespace longspan::comm
