// Lateness of transfers in replays of captured graphs, which no call of the host accompanies.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "cuda/pass_counter.h"
#include "longspan/status.h"

namespace longspan::comm {

/// Transfers of graphs are counted by the device when they begin and when they end. late() belongs
/// to the watch's thread, all else to the rank's.
class NcclReplays {
 public:
  using Clock = std::chrono::steady_clock;

  /// For the current device.
  static Result<std::unique_ptr<NcclReplays>> make();

  /// Around transfers that are being captured.
  Status begin(Stream lane) const { return begun_.count(lane); }
  Status end(Stream lane) const { return ended_.count(lane); }
  /// Of captured transfers; the longest counts.
  void set_deadline(std::chrono::milliseconds deadline);

  /// peer_lost when transfers have begun and for longer than the deadline no others have, and these
  /// have not ended. Asked again and again.
  std::optional<Error> late(Clock::time_point now);

 private:
  NcclReplays(cuda::PassCounter begun, cuda::PassCounter ended)
      : begun_(std::move(begun)), ended_(std::move(ended)) {}

  cuda::PassCounter begun_, ended_;
  std::atomic<int64_t> deadline_ms_ = 0;
  uint64_t last_ = 0;        // how many had begun at `since_`
  Clock::time_point since_;  // when that was first seen
};

}  // namespace longspan::comm
