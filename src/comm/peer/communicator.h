// Ranks of one host on CUDA devices, as threads or processes: senders push with copy engines, in
// stream order, and devices tell each other by flags in their memory how far a message is. A loan
// takes the same steps: its lender offers memory as a receiver does, and a kernel of the borrower
// does with the flags what a sender's lane would.
//
// Senders push because the driver runs a copy between devices on the source's copy engine, whoever
// queues it. Queued by the receiver, it waits in a queue of the source's that other ranks' work
// shares, and captured graphs then wait for each other for ever.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/peer/counters.h"
#include "comm/peer/flags.h"
#include "comm/peer/flight.h"
#include "comm/peer/mailbox.h"
#include "comm/peer/meeting.h"
#include "comm/peer/memory_map.h"
#include "comm/watch.h"
#include "cuda/words.h"
#include "longspan/communicator.h"

namespace longspan::comm {

class PeerCommunicator final : public Communicator {
 public:
  /// Collective over `host`, which goes on to carry the library's own words at cold calls.
  static Result<std::shared_ptr<PeerCommunicator>> make(std::shared_ptr<Communicator> host,
                                                        int ordinal);
  ~PeerCommunicator() override;

  std::string_view name() const override { return "peer"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const Topology& topology() const override { return host_->topology(); }

  Result<void*> allocate(size_t bytes) override;
  void release(void* data) override;
  Status register_buffer(void*, size_t) override { return {}; }
  void deregister_buffer(void*) override {}

  bool has_own_device() const override { return !meeting_.shares_device; }

  Result<Request> start(std::span<const Transfer> transfers) override {
    return host_->start(transfers);
  }
  Status wait(Request request, std::chrono::milliseconds deadline) override {
    return host_->wait(request, deadline);
  }
  bool on_device() const override { return true; }
  Result<Request> start_on(std::span<const Transfer> transfers, Stream stream) override;
  Status wait_on(Request request, Stream stream, std::chrono::milliseconds deadline) override;
  bool lends() const override { return true; }
  Status lendable(const void* data) override;
  Result<Loans> loans_on(Request request, Stream stream,
                         std::chrono::milliseconds deadline) override;
  Status health() const override { return watch_->health(); }

  Result<std::shared_ptr<Communicator>> split(int color, int key) override;
  void abandon(const Error& reason) override;

 private:
  PeerCommunicator(std::shared_ptr<Communicator> host, int ordinal, Meeting meeting,
                   CounterSets counters, cuda::OwnedStream rescue, cuda::Event rescued);

  Result<size_t> take_flight();
  /// Where the copies of transfers on `stream` are queued.
  Stream lane_of(Stream stream, bool captured) const;
  /// Whether what is lent can wait for the launch that follows.
  bool launches_lend() const { return !meeting_.shares_bus_address; }
  Status post_receives(Flight& flight, Stream stream);
  /// Tells senders and borrowers, once the stream is here, that memory is free or data ready.
  Status offer_room(const Flight& flight, Stream stream);
  /// Queues the copies of all open sends whose receivers have offered memory.
  Status progress();
  /// invalid_argument where the two sides differ.
  Status check_offer(const Flight& flight, const Transfer& send, const Mailbox::Offer& offer);
  Status copy(Flight& flight, Flight::Send& send, const Mailbox::Offer& offer);
  Status borrow(Flight& flight, Flight::Send& send, const Mailbox::Offer& offer);
  /// Tells lenders that the kernel which reads their memory is queued.
  void confirm_loans(const Flight& flight);
  /// How far the host has to have heard from peers.
  enum class Heard { kLenders, kAll };
  /// Whether it has; the error where one refused.
  Result<bool> complete(const Flight& flight, Heard heard) const;
  /// Transfers whose peers the host has not heard from.
  std::vector<Transfer> unanswered(const Flight& flight) const;
  /// A peer among them that said it leaves.
  std::optional<Error> departed(const Flight& flight) const;
  Status hear_from_peers(Flight& flight, Heard heard, std::chrono::milliseconds deadline);
  Result<Flight*> open_flight(Request request) const;
  Status queue_waits(Flight& flight, Stream stream);
  /// Transfers on one stream wait for those that were waited for on another: slots are reused.
  Status follow_last(Stream stream) const;

  std::optional<Error> lost() const;
  /// Satisfies every wait of this rank's device.
  void satisfy_waits(const Error& reason);

  std::shared_ptr<Communicator> host_;
  int ordinal_;
  Meeting meeting_;
  Mailbox mailbox_;
  cuda::WordOperations words_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<Flight*> sending_;  // with copies to queue, in the order of their starts
  size_t next_flight_ = 0;
  const Flight* last_ = nullptr;  // that was waited for, and where
  Stream last_stream_;
  std::vector<cuda::Memory> allocations_;
  CounterSets counters_;
  std::shared_ptr<void> ones_;  // bytes of 1 for every flag; null where memory could not be had
  cuda::OwnedStream rescue_;    // of the watch's thread
  cuda::Event rescued_;
  std::unique_ptr<Watch> watch_;
};

}  // namespace longspan::comm
