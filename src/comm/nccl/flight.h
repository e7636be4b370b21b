// The transfers of one start_on, from when they are queued until the device has done them.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/watch.h"
#include "cuda/runtime.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// Reused. Used by the rank's thread; the watch asks begun, ended and late.
class NcclFlight final : public Watched {
 public:
  static Result<NcclFlight> make();

  /// For the transfers of a new request. `captured`: they become part of a graph, whose replays
  /// nobody watches.
  void take(int64_t request, std::span<const Transfer> transfers, bool captured);
  int64_t request() const { return request_; }
  bool captured() const { return captured_; }
  bool waited() const { return waited_; }
  void set_waited() { waited_ = true; }

  /// The lane goes on when `stream` got here.
  Status enter(Stream stream, Stream lane);
  /// The lane got here: everything before, and the transfers between leave and enter, is done.
  Status leave(Stream lane) { return done_.record(lane); }
  /// `stream` goes on when the transfers are done.
  Status hold(Stream stream) { return done_.hold(stream); }

  bool begun() const override { return captured_ || begun_.reached(); }
  bool ended() const override { return captured_ || done_.reached(); }
  Error late(std::chrono::milliseconds deadline) const override;

 private:
  NcclFlight(cuda::Event entry, cuda::Event begun, cuda::Event done)
      : entry_(std::move(entry)), begun_(std::move(begun)), done_(std::move(done)) {}

  int64_t request_ = -1;
  bool captured_ = false;
  bool waited_ = true;
  Transfer first_;
  int count_ = 0;
  std::vector<int> peers_;
  cuda::Event entry_;  // where the caller's stream was
  cuda::Event begun_;  // the lane is at the transfers
  cuda::Event done_;
};

}  // namespace longspan::comm
