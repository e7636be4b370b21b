// What the pull step of a schedule asks of communicator and provider.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "longspan/communicator.h"
#include "longspan/engine.h"
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

/// Lets forward's all_gather pull where the chosen provider can on all ranks; its strategy_reason
/// says whether, and why not. `setting` names its strategies.
Status choose_pulls(Setting& setting, const Device& device, Selection& forward);

}  // namespace longspan
