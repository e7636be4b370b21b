#include "comm/mpi/channel.h"

#include <fmt/format.h>

#include <utility>

#include "comm/backoff.h"
#include "comm/check_transfers.h"
#include "comm/deadline.h"
#include "comm/errors.h"
#include "comm/mpi/pieces.h"

namespace longspan::comm {

MpiChannel::MpiChannel(std::shared_ptr<MpiRuntime> runtime, MPI_Comm communicator,
                       size_t piece_bytes)
    : runtime_(std::move(runtime)), communicator_(communicator), piece_bytes_(piece_bytes) {
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size_);
  gone_.resize(static_cast<size_t>(size_));
  int* largest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &largest, &found);
  notice_tag_ = found != 0 ? *largest : 32767;  // what the standard guarantees
}

MpiChannel::~MpiChannel() {
  if (!runtime_->lost() && !MpiRuntime::finalized()) MPI_Comm_free(&communicator_);
}

int MpiChannel::wire_tag(uint32_t tag) const {
  return tag == kExchangeTag ? notice_tag_ - 1 : static_cast<int>(tag);
}

Status MpiChannel::check_tags(std::span<const Transfer> transfers) const {
  for (const Transfer& transfer : transfers) {
    if (transfer.tag == kExchangeTag || int64_t{transfer.tag} < notice_tag_ - 1) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("tag {} is above {}, the largest tag that this MPI carries for callers",
                    transfer.tag, notice_tag_ - 2),
        "mpi"};
  }
  return {};
}

Result<Request> MpiChannel::start(std::span<const Transfer> transfers) {
  if (broken_) return *broken_;
  LONGSPAN_CHECK_OK(check_transfers(transfers, size_, "mpi"));
  LONGSPAN_CHECK_OK(check_tags(transfers));
  const size_t flight = flights_.take(transfers);
  for (size_t op = 0; op < transfers.size(); ++op) {
    const bool sends = transfers[op].kind == TransferKind::kSend;
    const Status posted = sends ? send(flight, op) : expect(flight, op);
    if (!posted.ok()) return fail(posted.error());
  }
  return flights_.request(flight);
}

Status MpiChannel::send(size_t flight_index, size_t op_index) {
  MpiFlight& flight = flights_.at(flight_index);
  MpiOp& op = flight.ops[op_index];
  const Transfer& transfer = op.transfer;
  while (!op.complete) {
    const size_t piece = next_piece(transfer.bytes, op.matched, piece_bytes_);
    const char* const data = static_cast<const char*>(transfer.data);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        MPI_Isend(piece == 0 ? nullptr : data + op.matched, static_cast<int>(piece), MPI_BYTE,
                  transfer.peer, wire_tag(transfer.tag), communicator_, &request);
    if (code != MPI_SUCCESS) {
      return Error{ErrorCode::kPeerLost,
                   fmt::format("cannot send to rank {}: {}", transfer.peer, mpi_text(code)), "mpi"};
    }
    op.matched += piece;
    op.complete = piece < piece_bytes_;
    flight.add_request(op_index, request);
  }
  return {};
}

Status MpiChannel::expect(size_t flight, size_t op_index) {
  MpiOp& op = flights_.at(flight).ops[op_index];
  ++flights_.at(flight).incoming;
  bool behind = false;  // an earlier receive of the same kind takes the arrivals first
  for (const MpiOp* other : expected_) {
    behind |= other->transfer.peer == op.transfer.peer && other->transfer.tag == op.transfer.tag;
  }
  expected_.push_back(&op);
  for (auto at = arrivals_.begin(); !behind && !op.complete && at != arrivals_.end();) {
    if (at->peer != op.transfer.peer || at->tag != wire_tag(op.transfer.tag)) {
      ++at;
      continue;
    }
    const Arrival arrival = *at;
    at = arrivals_.erase(at);
    LONGSPAN_CHECK_OK(receive(op, arrival));
  }
  return {};
}

Status MpiChannel::progress() {
  for (;;) {
    int found = 0;
    Arrival arrival = {};
    MPI_Status status;
    LONGSPAN_CHECK_OK(mpi_check(
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, &arrival.message, &status),
        "MPI_Improbe"));
    if (found == 0) return {};
    ++moved_;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    arrival.peer = status.MPI_SOURCE;
    arrival.tag = status.MPI_TAG;
    arrival.bytes = static_cast<size_t>(bytes);
    LONGSPAN_CHECK_OK(arrive(arrival));
  }
}

Status MpiChannel::arrive(Arrival arrival) {
  if (arrival.tag == notice_tag_) return read_notice(arrival);
  for (MpiOp* op : expected_) {
    if (op->transfer.peer != arrival.peer || wire_tag(op->transfer.tag) != arrival.tag) continue;
    return receive(*op, arrival);
  }
  arrivals_.push_back(arrival);
  return {};
}

Status MpiChannel::receive(MpiOp& op, Arrival arrival) {
  const size_t piece = next_piece(op.transfer.bytes, op.matched, piece_bytes_);
  if (arrival.bytes != piece) return mismatch(op, arrival.bytes);
  MpiFlight& flight = flights_.at(op.flight);
  char* const data = static_cast<char*>(op.transfer.data);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Imrecv(piece == 0 ? nullptr : data + op.matched, static_cast<int>(piece),
                              MPI_BYTE, &arrival.message, &request);
  if (code != MPI_SUCCESS) {
    return Error{ErrorCode::kPeerLost,
                 fmt::format("cannot receive from rank {}: {}", arrival.peer, mpi_text(code)),
                 "mpi"};
  }
  op.matched += piece;
  op.complete = piece < piece_bytes_;
  flight.add_request(static_cast<size_t>(&op - flight.ops.data()), request);
  if (!op.complete) return {};
  --flight.incoming;
  std::erase(expected_, &op);
  return {};
}

Error MpiChannel::mismatch(const MpiOp& op, size_t piece) {
  const bool more = piece == piece_bytes_;  // then pieces follow
  const Transfer& transfer = op.transfer;
  const std::string text = mismatch_text({.source = transfer.peer,
                                          .sent = op.matched + piece,
                                          .at_least = more,
                                          .destination = rank_,
                                          .expected = transfer.bytes,
                                          .tag = transfer.tag});
  if (transfer.peer != rank_) tell(std::span(&transfer.peer, 1), NoticeKind::kMismatch, text);
  return {ErrorCode::kInvalidArgument, text, "mpi"};
}

Status MpiChannel::read_notice(Arrival arrival) {
  Notice notice;
  MPI_Status status;
  LONGSPAN_CHECK_OK(mpi_check(
      MPI_Mrecv(&notice, static_cast<int>(sizeof notice), MPI_BYTE, &arrival.message, &status),
      "MPI_Mrecv"));
  if (notice.kind == NoticeKind::kMismatch) {
    return Error{ErrorCode::kInvalidArgument, notice.str(), "mpi"};
  }
  gone_[static_cast<size_t>(arrival.peer)] = notice.str();
  return {};
}

Status MpiChannel::collect(MpiFlight& flight) {
  const int count = static_cast<int>(flight.requests.size());
  if (flight.live == 0) return {};
  flight.indices.resize(flight.requests.size());
  flight.statuses.resize(flight.requests.size());
  int done = 0;
  const int code = MPI_Testsome(count, flight.requests.data(), &done, flight.indices.data(),
                                flight.statuses.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return mpi_check(code, "MPI_Testsome");
  for (int i = 0; i < done; ++i) {
    const size_t request = static_cast<size_t>(flight.indices[static_cast<size_t>(i)]);
    MpiOp& op = flight.ops[flight.op_of_request[request]];
    --op.live;
    --flight.live;
    ++moved_;
    const int error = flight.statuses[static_cast<size_t>(i)].MPI_ERROR;
    if (code == MPI_SUCCESS || error == MPI_SUCCESS) continue;
    return Error{
        ErrorCode::kPeerLost,
        fmt::format("the transfer with rank {} failed: {}", op.transfer.peer, mpi_text(error)),
        "mpi"};
  }
  return {};
}

Status MpiChannel::poll(MpiFlight& flight) {
  LONGSPAN_CHECK_OK(progress());
  LONGSPAN_CHECK_OK(collect(flight));
  return flight.done() ? Status{} : lost_peer(flight);
}

Status MpiChannel::until_done(MpiFlight& flight, std::chrono::milliseconds deadline) {
  const auto end = deadline_after(deadline);
  for (Backoff backoff;; backoff.pause()) {
    const int64_t before = moved_;
    LONGSPAN_CHECK_OK(poll(flight));
    if (flight.done()) return {};
    if (moved_ != before) backoff.reset();
    if (std::chrono::steady_clock::now() >= end) return give_up(flight, deadline);
  }
}

Status MpiChannel::wait(Request request, std::chrono::milliseconds deadline) {
  if (broken_) return *broken_;
  const std::optional<size_t> index = flights_.find(request);
  if (!index) return unknown_request(request, "mpi");
  const Status status = until_done(flights_.at(*index), deadline);
  if (!status.ok()) return fail(status.error());
  flights_.recycle(*index);
  return {};
}

Status MpiChannel::lost_peer(const MpiFlight& flight) const {
  for (const MpiOp& op : flight.ops) {
    const auto& reason = gone_[static_cast<size_t>(op.transfer.peer)];
    if (op.done() || !reason) continue;
    return left_peer(op.transfer.peer, *reason, "mpi");
  }
  return {};
}

Error MpiChannel::give_up(const MpiFlight& flight, std::chrono::milliseconds deadline) {
  Error late = missing(flight, deadline);
  abandon(late.text());
  const auto end = deadline_after(kLastWord);
  for (Backoff backoff; std::chrono::steady_clock::now() < end; backoff.pause()) {
    LONGSPAN_CHECK_OK(progress());
  }
  const Status word = lost_peer(flight);
  if (!word.ok()) late.message += "; " + word.error().message;
  return late;
}

Error MpiChannel::missing(const MpiFlight& flight, std::chrono::milliseconds deadline) const {
  const Transfer* earliest = nullptr;
  int open = 0;
  for (const MpiOp& op : flight.ops) {
    if (op.done()) continue;
    ++open;
    if (earliest == nullptr) earliest = &op.transfer;
  }
  return late_peer(*earliest, open, deadline, "mpi");
}

void MpiChannel::tell(std::span<const int> peers, NoticeKind kind, const std::string& text) {
  const Notice& notice = runtime_->keep(Notice::make(kind, text));
  std::vector<MPI_Request> requests;
  for (const int peer : peers) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Isend(&notice, static_cast<int>(sizeof notice), MPI_BYTE, peer,
                               notice_tag_, communicator_, &request);
    if (code == MPI_SUCCESS) requests.push_back(request);
  }
  // A live peer needs nothing to let a notice pass; a dead one must not hold up the survivors.
  const auto end = deadline_after(std::chrono::milliseconds(200));
  int done = 0;
  for (Backoff backoff; done == 0 && std::chrono::steady_clock::now() < end; backoff.pause()) {
    const int count = static_cast<int>(requests.size());
    if (MPI_Testall(count, requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
  }
}

void MpiChannel::abandon(const std::string& reason) {
  if (abandoned_ || MpiRuntime::finalized()) return;
  abandoned_ = true;
  if (!broken_) broken_ = fail({ErrorCode::kPeerLost, "this rank left: " + reason, "mpi"});
  std::vector<int> peers;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && !gone_[static_cast<size_t>(peer)]) peers.push_back(peer);
  }
  tell(peers, NoticeKind::kLeft, reason);
}

Error MpiChannel::fail(Error error) {
  // Transfers may be in flight for ever now, and peers may have died: MPI_Finalize would hang.
  runtime_->mark_lost();
  broken_ = std::move(error);
  return *broken_;
}

}  // namespace longspan::comm
