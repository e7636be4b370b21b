// A process group of the tests' own: messages are copied into boxes that all ranks share. It is
// what a caller of the callback communicator writes over the transport that it has.
#pragma once

#include <memory>
#include <vector>

#include "longspan/communicator.h"

namespace longspan::testkit {

/// Callback communicators of all ranks, over one set of boxes.
std::vector<std::shared_ptr<Communicator>> make_mailbox_communicators(const Topology& topology);

}  // namespace longspan::testkit
