#include "engine/options.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "guard/guard.h"

namespace longspan {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "engine"};
}

}  // namespace

Status check_options(const Options& options, const Communicator* communicator,
                     const Device& device) {
  if (!communicator) return invalid("communicator is null; make one (communicator.h)");
  if (!device.is_cuda() && !device.workers) {
    return invalid("device has no worker threads; use cpu_device()");
  }
  if (communicator->size() > 1 && communicator->on_device() != device.is_cuda()) {
    return invalid(fmt::format("communicator {} moves {} memory and the device is {}; use {}",
                               communicator->name(), communicator->on_device() ? "device" : "host",
                               device.name,
                               device.is_cuda() ? "peer or nccl" : "threads, mpi or callback"));
  }
  if (options.deadline.count() <= 0) {
    return invalid(fmt::format("deadline {} ms: must be positive", options.deadline.count()));
  }
  if (options.head_slices < 0 || options.head_slices > kMostHeadSlices) {
    return invalid(fmt::format("head_slices {}: from 1 to {}, or 0: automatic", options.head_slices,
                               kMostHeadSlices));
  }
  if (options.score_bytes < 0) {
    return invalid(fmt::format("score_bytes {}: at least 0, which is the provider's own",
                               options.score_bytes));
  }
  for (const std::string* strategy : {&options.forward.strategy, &options.backward.strategy}) {
    if (*strategy == "auto") continue;
    if (strategy == &options.backward.strategy && *strategy == kNoStrategy) continue;
    LONGSPAN_TRY([[maybe_unused]] const Strategy* const found, find_strategy(*strategy));
  }
  if (options.partition != "auto") {
    LONGSPAN_TRY([[maybe_unused]] const PartitionKind kind, parse_partition(options.partition));
  }
  return guard::check_policy(options.guards, device);
}

}  // namespace longspan
