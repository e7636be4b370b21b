// All ranks of a test as threads, over communicators of the test's choice.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "longspan/communicator.h"
#include "testkit/conformance.h"
#include "testkit/flight.h"

namespace longspan::testkit {

using Communicators = std::vector<std::shared_ptr<Communicator>>;

/// Calls body(communicator) on a thread per rank, and returns when all are done. A rank's
/// communicator is released when its body returns.
void for_each_rank(Communicators communicators,
                   const std::function<void(std::shared_ptr<Communicator>)>& body);

/// As run_case, over these communicators.
Result<tool::GroupResults> run_group(const Case& c, const tool::Inputs& inputs,
                                     Communicators communicators);

/// As run_case, on flights that `edit` may change before they start.
Result<tool::GroupResults> run_flights(const Case& c, const tool::Inputs& inputs,
                                       const std::function<void(Flight&)>& edit);

/// Backward alone, given the O and LSE of another run. The case's backward must not need what its
/// forward keeps.
Result<tool::GroupResults> run_backward(const Case& c, const tool::Inputs& inputs,
                                        const tool::GroupResults& forward);

/// Every rank's prepared call; nothing is computed.
Result<std::vector<std::shared_ptr<const Call>>> prepare_group(const Case& c);

}  // namespace longspan::testkit
