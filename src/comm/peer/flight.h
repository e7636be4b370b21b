// The transfers of one start_on.
#pragma once

#include <memory>
#include <vector>

#include "comm/peer/region.h"
#include "comm/watch.h"
#include "cuda/runtime.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// Reused. Watched from wait_on, which queues the last of it, until the device is through.
class Flight final : public Watched {
 public:
  struct Send {
    Transfer transfer;
    int slot = 0;
    MemoryName data;
  };
  struct Receive {
    Transfer transfer;
    bool queued = false;  // its copy
  };

  static Result<std::unique_ptr<Flight>> make();

  bool begun() const override { return before.reached(); }
  bool ended() const override { return after.reached(); }
  Error late(std::chrono::milliseconds deadline) const override;

  /// Everything that was queued is done, and nobody waits for it.
  bool idle() const { return !open && ended(); }
  void clear();

  cuda::Event entry;   // where the stream was at the start
  cuda::Event copied;  // where the lane has made all copies
  cuda::Event before;  // where the stream begins to wait
  cuda::Event after;   // where it has waited
  std::vector<Send> sends;
  std::vector<Receive> receives;
  size_t copies = 0;  // receives that are queued
  bool open = false;  // between start_on and wait_on
  bool captured = false;

 private:
  Flight(cuda::Event e, cuda::Event c, cuda::Event b, cuda::Event a)
      : entry(std::move(e)), copied(std::move(c)), before(std::move(b)), after(std::move(a)) {}
};

}  // namespace longspan::comm
