// The half of the peer communicator that lends memory to kernels of other ranks.
#include "comm/peer/communicator.h"

namespace longspan::comm {

Status PeerCommunicator::lendable(const void* data) {
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_TRY([[maybe_unused]] const MemoryName name, meeting_.memory->name_of(data));
  return {};
}

Status PeerCommunicator::borrow(Flight& flight, Flight::Send& send, const Mailbox::Offer& offer) {
  const Transfer& t = send.transfer;
  LONGSPAN_CHECK_OK(check_offer(flight, t, offer));
  LONGSPAN_TRY(send.loan.data, meeting_.memory->reach(t.peer, offer.letter.data, flight.captured));
  send.loan.ready = meeting_.flags.room(rank(), t.peer, offer.slot);
  send.loan.done = meeting_.flags.arrived(rank(), t.peer, offer.slot);
  send.slot = offer.slot;
  send.queued = true;
  ++flight.copies;
  mailbox_.claim(t.peer, offer.slot);
  return {};
}

Result<Loans> PeerCommunicator::loans_on(Request request, Stream stream,
                                         std::chrono::milliseconds deadline) {
  LONGSPAN_TRY(Flight* const flight, open_flight(request));
  const cuda::DeviceScope scope(ordinal_);
  const Status heard = hear_from_peers(*flight, Heard::kLenders, deadline);
  if (!heard.ok()) {
    watch_->fail(heard.error());
    return heard.error();
  }
  flight->loans.clear();
  for (const Flight::Send& send : flight->sends) {
    flight->loans.push_back(send.loan);
    if (!launches_lend()) words_.wait(send.loan.ready);
  }
  LONGSPAN_CHECK_OK(words_.enqueue(stream));
  flight->lent_by_launch = launches_lend();
  flight->lent.clear();
  for (const Flight::Receive& receive : flight->receives) {
    if (!flight->lent_by_launch) break;
    const int borrower = receive.transfer.peer;
    flight->lent.push_back({.ready = meeting_.flags.room(borrower, rank(), receive.slot),
                            .done = meeting_.flags.arrived(borrower, rank(), receive.slot)});
  }
  if (flight->counters == nullptr) flight->counters = counters_.take();
  return Loans{.borrowed = flight->loans, .lent = flight->lent, .counters = flight->counters};
}

void PeerCommunicator::confirm_loans(const Flight& flight) {
  if (!flight.of_loans) return;
  for (const Flight::Send& send : flight.sends) {
    if (send.queued) mailbox_.confirm(send.transfer.peer, send.slot);
  }
}

}  // namespace longspan::comm
