// How the ranks of a run that are threads of this process talk to each other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "longspan/communicator.h"
#include "longspan/device.h"

namespace longspan::tool {

struct CommunicatorChoice {
  std::string name = "threads";  // value of --communicator
  Topology topology;
  std::vector<Device> devices;  // of each rank where they are GPUs; else empty
};

/// One rank's communicator. Collective: each rank calls it in its own thread.
using MakeRank = std::function<Result<std::shared_ptr<Communicator>>(size_t rank)>;

/// What does not fit the devices is invalid_argument and names the flag to change.
Result<MakeRank> make_ranks(const CommunicatorChoice& choice);

}  // namespace longspan::tool
