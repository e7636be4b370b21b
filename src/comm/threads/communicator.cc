#include "comm/threads/communicator.h"

#include <utility>

#include "comm/check_transfers.h"
#include "comm/split_group.h"

namespace longspan {
namespace comm {

ThreadsCommunicator::ThreadsCommunicator(std::shared_ptr<Hub> hub, Topology topology, int rank)
    : hub_(std::move(hub)), topology_(std::move(topology)), rank_(rank) {}

ThreadsCommunicator::~ThreadsCommunicator() {
  hub_->leave(rank_, "its communicator was destroyed");
}

Result<void*> ThreadsCommunicator::allocate(size_t bytes) {
  return memory_.allocate(bytes, "threads");
}

void ThreadsCommunicator::release(void* data) { memory_.release(data); }

Status ThreadsCommunicator::register_buffer(void*, size_t) { return {}; }

void ThreadsCommunicator::deregister_buffer(void*) {}

Result<Request> ThreadsCommunicator::start(std::span<const Transfer> transfers) {
  LONGSPAN_CHECK_OK(check_transfers(transfers, size(), "threads"));
  return hub_->start(rank_, transfers);
}

Status ThreadsCommunicator::wait(Request request, std::chrono::milliseconds deadline) {
  return hub_->wait(rank_, request, deadline);
}

Result<std::shared_ptr<Communicator>> ThreadsCommunicator::split(int color, int key) {
  LONGSPAN_TRY(SplitGroup group, agree_on_split(*this, color, key));
  const int members = static_cast<int>(group.members.size());
  const std::shared_ptr<Hub> hub = hub_->part(splits_++, color, members);
  return std::shared_ptr<Communicator>(
      std::make_shared<ThreadsCommunicator>(hub, std::move(group.topology), group.rank));
}

void ThreadsCommunicator::abandon(const Error& reason) { hub_->leave(rank_, reason.text()); }

}  // namespace comm

std::vector<std::shared_ptr<Communicator>> make_threads_communicators(const Topology& topology) {
  const auto hub = std::make_shared<comm::Hub>(topology.ranks());
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    communicators.push_back(std::make_shared<comm::ThreadsCommunicator>(hub, topology, rank));
  }
  return communicators;
}

}  // namespace longspan
