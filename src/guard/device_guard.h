// The guard of CUDA devices. Internal to this folder.
#pragma once

#include "guard/guard.h"

namespace longspan::guard {

Result<std::shared_ptr<Report>> make_device_report(const Device& device);
Result<std::unique_ptr<const Guard>> make_device_guard(std::vector<Predicate> predicates,
                                                       GuardPolicy policy, const Device& device,
                                                       std::shared_ptr<Report> report);

}  // namespace longspan::guard
