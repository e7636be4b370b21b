// Whether backward's all_gather writes whole gradients of gathered keys.
#pragma once

#include "longspan/engine.h"
#include "longspan/schedule.h"

namespace longspan {

/// Sets Setting::gathers_whole where the chosen provider's partial results have 16 bits, it offers
/// whole ones on the sampled ranks, and the modelled time is less; strategy_reason says so, or why
/// not. `setting` names its strategies. A rank whose results cannot be whole adds them up as
/// without: messages are the same.
Status choose_gathers(Setting& setting, const Device& device, const Rates& rates,
                      Selection& backward);

}  // namespace longspan
