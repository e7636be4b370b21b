// What the pull step of a schedule asks of communicator and provider.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "longspan/communicator.h"
#include "longspan/decline.h"
#include "longspan/provider.h"
#include "longspan/schedule.h"

namespace longspan {

struct Pulling {
  StepId step = kNone;  // none: the schedule does not pull
  struct Lender {
    int rank = 0;
    std::array<size_t, 2> bytes = {};  // of K and V
  };
  std::vector<Lender> lenders;  // in the order of PulledKeys::loans
  std::vector<Pull> pulls;
};

Pulling pulling_of(const Schedule& schedule);

/// Tells loans of a call apart from what strategies send.
inline constexpr uint32_t kLoanTag = 100;

/// Why forward's all_gather by `provider` does not pull, or nothing where all ranks can. `setting`
/// names its strategies.
Result<std::optional<Decline>> pull_decline(Setting setting, const Provider& provider,
                                            const Device& device);

}  // namespace longspan
