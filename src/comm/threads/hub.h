// What the communicators of one group of threads share: posted transfers and who has left.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longspan/communicator.h"

namespace longspan::comm {

/// Thread-safe. `rank` is always the caller's own; each rank calls from one thread at a time.
///
/// The side that posts second copies, outside of the lock. Both transfers are then `kCopying`, and
/// nobody returns while its memory takes part in a copy, not even on an error.
class Hub {
 public:
  explicit Hub(int ranks);

  Result<Request> start(int rank, std::span<const Transfer> transfers);
  Status wait(int rank, Request request, std::chrono::milliseconds deadline);

  /// The rank will not transfer any more: everyone who waits for it, or comes to, gets peer_lost
  /// with `reason`. Only the first reason counts.
  void leave(int rank, const std::string& reason);

  /// The hub of one part of the `round`-th split; made by the first of its `members` ranks to ask.
  std::shared_ptr<Hub> part(int64_t round, int color, int members);

 private:
  struct Flight;

  enum class State { kPending, kCopying, kDone };

  struct Op {
    Transfer transfer;
    int owner = 0;
    State state = State::kDone;
    Flight* flight = nullptr;
    Op* partner = nullptr;
    Op* next = nullptr;       // pending on the same pair of ranks, in order of posting
    Op* next_copy = nullptr;  // matched in the same start
    Op* sibling = nullptr;    // of the same flight; links free ones too
  };

  /// The transfers of one start.
  struct Flight {
    int64_t index = 0;
    int64_t generation = 0;  // odd while in use; tells stale requests apart
    int open = 0;            // transfers that are not done
    Op* first = nullptr;
    Flight* next_free = nullptr;
    std::optional<Error> error;
  };

  struct Seat {
    std::condition_variable changed;
    std::deque<Op> ops;  // deques: slots never move, and are reused
    std::deque<Flight> flights;
    Op* free_ops = nullptr;
    Flight* free_flights = nullptr;
    int copying = 0;  // copies in progress that touch the rank's memory
    std::optional<Error> broken;
    std::optional<std::string> gone;
  };

  struct Pending {
    Op* first = nullptr;
    Op* last = nullptr;
  };

  // All of these need the lock.
  Seat& seat(int rank) { return seats_[static_cast<size_t>(rank)]; }
  Pending& pending(int source, int destination);
  Pending& pending(const Op& op);
  Flight& take_flight(Seat& seat);
  Flight* find_flight(Seat& seat, Request request);
  void recycle(Seat& seat, Flight& flight);
  Op& take_op(Seat& seat, Flight& flight, const Transfer& transfer, int owner);
  Op* take_match(const Op& op);
  void unlink(Op& op);
  /// Prepends the transfer to `copies` when its other side is there; returns the list.
  Op* post(Op& op, Op* copies);
  static Error size_mismatch(const Op& op, const Op& match);
  void finish(Op& op);
  void fail(Op& op, const Error& error);
  void withdraw(Seat& seat);
  std::optional<Error> missing(const Flight& flight, std::chrono::milliseconds deadline) const;

  void copy(Op* copies);

  std::mutex mutex_;
  std::deque<Seat> seats_;
  std::vector<Pending> pending_;  // by source and destination
  std::map<std::pair<int64_t, int>, std::pair<std::shared_ptr<Hub>, int>> parts_;
};

}  // namespace longspan::comm
