#include "comm/staging.h"

#include <thread>
#include <utility>

#include "comm/check_transfers.h"
#include "comm/deadline.h"
#include "comm/errors.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "staging";
constexpr std::chrono::microseconds kPause{50};

}  // namespace

Result<std::shared_ptr<Communicator>> Staging::make(Communicator& device, int ordinal) {
  const cuda::DeviceScope scope(ordinal);
  LONGSPAN_TRY(cuda::OwnedStream stream, cuda::OwnedStream::make());
  LONGSPAN_TRY(cuda::Event done, cuda::Event::make());
  return std::shared_ptr<Communicator>(
      new Staging(device, ordinal, std::move(stream), std::move(done)));
}

Result<Request> Staging::start(std::span<const Transfer> transfers) {
  LONGSPAN_CHECK_OK(check_transfers(transfers, size(), kWhere));
  const cuda::DeviceScope scope(ordinal_);
  size_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.bytes;
  Flight flight{.transfers = {transfers.begin(), transfers.end()}};
  LONGSPAN_TRY(flight.staged, cuda::Memory::make(bytes));
  std::vector<Transfer> staged = flight.transfers;
  auto* at = static_cast<std::byte*>(flight.staged.data());
  for (Transfer& transfer : staged) {
    if (transfer.kind == TransferKind::kSend) {
      LONGSPAN_CHECK_OK(cuda::copy(at, transfer.data, transfer.bytes));
    }
    transfer.data = at;
    at += transfer.bytes;
  }
  LONGSPAN_TRY(flight.request, device_.start_on(staged, stream_.get()));
  flights_.emplace(requests_, std::move(flight));
  return Request{requests_++};
}

Status Staging::wait(Request request, std::chrono::milliseconds deadline) {
  const auto found = flights_.find(request.id);
  if (found == flights_.end()) return unknown_request(request, kWhere);
  const cuda::DeviceScope scope(ordinal_);
  const Status status = finish(found->second, deadline);
  flights_.erase(found);
  return status;
}

Status Staging::finish(const Flight& flight, std::chrono::milliseconds deadline) {
  const auto end = deadline_after(deadline);
  LONGSPAN_CHECK_OK(device_.wait_on(flight.request, stream_.get(), deadline));
  LONGSPAN_CHECK_OK(done_.record(stream_.get()));
  while (!done_.reached()) {
    LONGSPAN_CHECK_OK(device_.health());
    if (std::chrono::steady_clock::now() > end) {
      const Error error = late_peer(flight.transfers.front(),
                                    static_cast<int>(flight.transfers.size()), deadline, kWhere);
      device_.abandon(error);
      return error;
    }
    std::this_thread::sleep_for(kPause);
  }
  LONGSPAN_CHECK_OK(device_.health());
  const auto* at = static_cast<const std::byte*>(flight.staged.data());
  for (const Transfer& transfer : flight.transfers) {
    if (transfer.kind == TransferKind::kRecv) {
      LONGSPAN_CHECK_OK(cuda::copy(transfer.data, at, transfer.bytes));
    }
    at += transfer.bytes;
  }
  return {};
}

Result<std::shared_ptr<Communicator>> Staging::split(int, int) {
  return Error{ErrorCode::kUnsupported, "host words over a device cannot be split", kWhere};
}

}  // namespace longspan::comm
