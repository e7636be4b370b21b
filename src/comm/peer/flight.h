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
    bool queued = false;  // its copy; of a loan: whether the lender's offer has come
    int slot = -1;        // of a loan
    Loan loan;
  };
  struct Receive {
    Transfer transfer;
    int slot = 0;
    MemoryName data;
  };

  static Result<std::unique_ptr<Flight>> make();

  bool begun() const override { return entry.reached(); }
  bool ended() const override { return after.reached(); }
  Error late(std::chrono::milliseconds deadline) const override;

  /// Everything that was queued is done, and nobody waits for it.
  bool idle() const { return !open && ended(); }
  void clear();

  cuda::Event entry;   // where the stream was at the start
  cuda::Event copied;  // where the lane has made all copies
  cuda::Event after;   // where it has waited
  std::vector<Send> sends;
  std::vector<Receive> receives;
  // What loans_on returned.
  std::vector<Loan> loans;
  std::vector<Lent> lent;
  uint32_t* counters = nullptr;
  size_t copies = 0;  // sends that are queued
  bool open = false;  // between start_on and wait_on
  bool captured = false;
  bool of_loans = false;        // sends are borrowed and receives are lent
  bool lent_by_launch = false;  // a launch does with the words of receives what streams would
  Stream lane;                  // of its copies

 private:
  Flight(cuda::Event e, cuda::Event c, cuda::Event a)
      : entry(std::move(e)), copied(std::move(c)), after(std::move(a)) {}
};

}  // namespace longspan::comm
