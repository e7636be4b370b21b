#include "comm/nccl/communicator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "comm/check_transfers.h"
#include "comm/errors.h"
#include "comm/nccl/make.h"
#include "comm/split_group.h"
#include "comm/staging.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "nccl";

}  // namespace

NcclCommunicator::NcclCommunicator(Gear gear, std::shared_ptr<Communicator> host, Seat seat)
    : gear_(std::move(gear)),
      host_(std::move(host)),
      seat_(std::move(seat)),
      watch_({.lost = [this] { return lost(); },
              .release = [this](const Error&) { gear_.handle->end(); }}) {}

Result<std::shared_ptr<Communicator>> NcclCommunicator::make(std::unique_ptr<NcclHandle> handle,
                                                             std::shared_ptr<Communicator> host,
                                                             Seat seat) {
  const int ordinal = seat.ordinal;
  const cuda::DeviceScope scope(ordinal);
  LONGSPAN_TRY(auto replays, NcclReplays::make());
  LONGSPAN_TRY(cuda::OwnedStream lane, cuda::OwnedStream::make());
  Gear gear{std::move(handle), std::move(replays), std::move(lane)};
  std::shared_ptr<NcclCommunicator> made(
      new NcclCommunicator(std::move(gear), std::move(host), std::move(seat)));
  if (made->host_ == nullptr) {
    LONGSPAN_TRY(made->host_, Staging::make(*made, ordinal));
    made->staged_ = true;
  }
  return std::shared_ptr<Communicator>(std::move(made));
}

NcclCommunicator::~NcclCommunicator() {
  const cuda::DeviceScope scope(seat_.ordinal);
  // Nobody watches transfers that were never waited for, so a lost peer would hold the lane.
  const bool given_up = std::any_of(flights_.begin(), flights_.end(),
                                    [](const NcclFlight& flight) { return !flight.waited(); });
  if (given_up) gear_.handle->end();
  (void)cuda::synchronize(gear_.lane.get()).ok();  // the watch ends what waits for a lost peer
  for (const NcclFlight& flight : flights_) watch_.remove(flight);
  host_.reset();
  allocations_.clear();
}

Result<void*> NcclCommunicator::allocate(size_t bytes) {
  const cuda::DeviceScope scope(seat_.ordinal);
  LONGSPAN_TRY(cuda::Memory memory, cuda::Memory::make(std::max<size_t>(bytes, 1)));
  allocations_.push_back(std::move(memory));
  return allocations_.back().data();
}

void NcclCommunicator::release(void* data) {
  const cuda::DeviceScope scope(seat_.ordinal);
  std::erase_if(allocations_, [data](const cuda::Memory& m) { return m.data() == data; });
}

std::optional<Error> NcclCommunicator::lost() {
  if (auto error = gear_.handle->lost()) return error;
  return gear_.replays->late(Watch::Clock::now());
}

Result<NcclFlight*> NcclCommunicator::take_flight() {
  if (!flights_.empty() && flights_.front().waited() && flights_.front().ended()) {
    watch_.remove(flights_.front());
    flights_.splice(flights_.end(), flights_, flights_.begin());
    return &flights_.back();
  }
  LONGSPAN_TRY(NcclFlight flight, NcclFlight::make());
  flights_.push_back(std::move(flight));
  return &flights_.back();
}

std::span<const Transfer> NcclCommunicator::sorted(std::span<const Transfer> transfers) {
  order_.resize(transfers.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
  const auto key = [&](size_t i) { return std::tuple(transfers[i].peer, transfers[i].tag, i); };
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  sorted_.clear();
  for (const size_t i : order_) sorted_.push_back(transfers[i]);
  return sorted_;
}

Result<Request> NcclCommunicator::start_on(std::span<const Transfer> transfers, Stream stream) {
  LONGSPAN_CHECK_OK(health());
  LONGSPAN_CHECK_OK(check_transfers(transfers, size(), kWhere));
  const cuda::DeviceScope scope(seat_.ordinal);
  LONGSPAN_TRY(const bool captured, cuda::capturing(stream));
  LONGSPAN_TRY(NcclFlight * flight, take_flight());
  flight->take(requests_++, transfers, captured);
  const Stream lane = gear_.lane.get();
  LONGSPAN_CHECK_OK(flight->enter(stream, lane));
  if (captured) LONGSPAN_CHECK_OK(gear_.replays->begin(lane));
  LONGSPAN_CHECK_OK(gear_.handle->post(sorted(transfers), lane));
  if (captured) LONGSPAN_CHECK_OK(gear_.replays->end(lane));
  LONGSPAN_CHECK_OK(flight->leave(lane));
  return Request{flight->request()};
}

Status NcclCommunicator::wait_on(Request request, Stream stream,
                                 std::chrono::milliseconds deadline) {
  const auto is_it = [&](const NcclFlight& flight) {
    return !flight.waited() && flight.request() == request.id;
  };
  const auto found = std::find_if(flights_.rbegin(), flights_.rend(), is_it);  // mostly the last
  if (found == flights_.rend()) return unknown_request(request, kWhere);
  found->set_waited();
  const cuda::DeviceScope scope(seat_.ordinal);
  LONGSPAN_CHECK_OK(found->hold(stream));
  if (found->captured()) {
    gear_.replays->set_deadline(deadline);
  } else {
    watch_.add(*found, deadline);
  }
  return health();
}

Result<std::shared_ptr<Communicator>> NcclCommunicator::split(int color, int key) {
  LONGSPAN_TRY(const SplitGroup group, agree_on_split(*host_, color, key));
  std::shared_ptr<Communicator> part;
  if (!staged_) {
    LONGSPAN_TRY(part, host_->split(color, key));
  }
  return join_part(gear_.handle->api(), *host_, group, std::move(part), seat_.ordinal);
}

void NcclCommunicator::abandon(const Error& reason) {
  watch_.fail(reason);
  gear_.handle->end();
  host_->abandon(reason);
}

}  // namespace longspan::comm
