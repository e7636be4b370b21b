#include "comm/errors.h"

#include <fmt/format.h>

namespace longspan::comm {

Error late_peer(const Transfer& transfer, int open, std::chrono::milliseconds deadline,
                const char* where) {
  return {
      ErrorCode::kPeerLost,
      fmt::format("rank {} did not {} {} bytes with tag {} within {} ms ({} transfers open); it "
                  "died, or is slower than the deadline",
                  transfer.peer, transfer.kind == TransferKind::kSend ? "take" : "send",
                  transfer.bytes, transfer.tag, deadline.count(), open),
      where};
}

Error left_peer(int peer, const std::string& reason, const char* where) {
  return {ErrorCode::kPeerLost, fmt::format("rank {} left: {}", peer, reason), where};
}

Error unknown_request(Request request, const char* where) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("request {} is not in flight; each request is waited for once", request.id),
          where};
}

std::string mismatch_text(const Sizes& sizes) {
  return fmt::format(
      "rank {} sends {}{} bytes with tag {} and rank {} expects {}; both sides must state the same "
      "size",
      sizes.source, sizes.at_least ? "at least " : "", sizes.sent, sizes.tag, sizes.destination,
      sizes.expected);
}

}  // namespace longspan::comm

namespace longspan {

Result<Request> Communicator::start_on(std::span<const Transfer>, Stream) {
  return Error{ErrorCode::kUnsupported,
               std::string(name()) + " moves host memory; device memory needs peer or nccl",
               "comm"};
}

Status Communicator::wait_on(Request, Stream, std::chrono::milliseconds) {
  return Error{ErrorCode::kUnsupported,
               std::string(name()) + " moves host memory; device memory needs peer or nccl",
               "comm"};
}

Status Communicator::lendable(const void*) {
  return Error{ErrorCode::kUnsupported, std::string(name()) + " has no loans; use peer", "comm"};
}

Result<Loans> Communicator::loans_on(Request, Stream, std::chrono::milliseconds) {
  return Error{ErrorCode::kUnsupported, std::string(name()) + " has no loans; use peer", "comm"};
}

}  // namespace longspan
