#include "comm/nccl/handle.h"

#include <fmt/format.h>

#include <cstring>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "cuda/runtime.h"

namespace longspan::comm {
namespace {

Status post_group(const NcclApi& api, ncclComm_t communicator, std::span<const Transfer> transfers,
                  Stream stream) {
  const auto native = static_cast<cudaStream_t>(stream.handle);
  LONGSPAN_CHECK_OK(api.check(api.group_start(), "ncclGroupStart"));
  ncclResult_t result = ncclSuccess;
  for (const Transfer& t : transfers) {
    if (t.bytes == 0 || result != ncclSuccess) continue;
    result = t.kind == TransferKind::kSend
                 ? api.send(t.data, t.bytes, ncclInt8, t.peer, communicator, native)
                 : api.recv(t.data, t.bytes, ncclInt8, t.peer, communicator, native);
  }
  const ncclResult_t end = api.group_end();  // in any case, else the thread stays in the group
  LONGSPAN_CHECK_OK(api.check(result, "ncclSend or ncclRecv"));
  return api.check(end, "ncclGroupEnd");
}

/// A byte from everyone to everyone.
Status connect(const NcclApi& api, ncclComm_t communicator, const NcclHandle::Place& place) {
  const auto ranks = static_cast<size_t>(place.ranks);
  LONGSPAN_TRY(const cuda::Memory bytes, cuda::Memory::make(2 * ranks));
  LONGSPAN_TRY(const cuda::OwnedStream stream, cuda::OwnedStream::make());
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < place.ranks; ++peer) {
    char* const byte = static_cast<char*>(bytes.data()) + peer;
    transfers.push_back({.kind = TransferKind::kSend, .peer = peer, .data = byte, .bytes = 1});
    transfers.push_back(
        {.kind = TransferKind::kRecv, .peer = peer, .data = byte + ranks, .bytes = 1});
  }
  LONGSPAN_CHECK_OK(post_group(api, communicator, transfers, stream.get()));
  return cuda::synchronize(stream.get());
}

Result<ncclComm_t> join_and_connect(const NcclApi& api, const NcclHandle::Place& place) {
  const cuda::DeviceScope scope(place.ordinal);
  ncclUniqueId id;
  static_assert(sizeof id == sizeof place.id);
  std::memcpy(&id, place.id.data(), sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t communicator = nullptr;
  LONGSPAN_CHECK_OK(api.check(api.comm_init(&communicator, place.ranks, id, place.rank, &config),
                              "ncclCommInitRankConfig"));
  const Status connected = connect(api, communicator, place);
  if (connected.ok()) return communicator;
  api.comm_abort(communicator);
  return connected.error();
}

}  // namespace

Result<NcclIdWords> make_nccl_id_words(const NcclApi& api) {
  ncclUniqueId id;
  LONGSPAN_CHECK_OK(api.check(api.unique_id(&id), "ncclGetUniqueId"));
  NcclIdWords words = {};
  std::memcpy(words.data(), &id, sizeof id);
  return words;
}

Result<std::unique_ptr<NcclHandle>> NcclHandle::join(std::shared_ptr<const NcclApi> api,
                                                     const Place& place,
                                                     std::chrono::milliseconds deadline) {
  // NCCL waits for all ranks without a limit, and cannot be stopped before it has a handle.
  std::packaged_task<Result<ncclComm_t>()> task(
      [api, place] { return join_and_connect(*api, place); });
  std::future<Result<ncclComm_t>> joined = task.get_future();
  std::thread thread(std::move(task));
  if (joined.wait_until(deadline_after(deadline)) != std::future_status::ready) {
    thread.detach();
    return Error{
        ErrorCode::kPeerLost,
        fmt::format("rank {}: NCCL did not connect {} ranks within {} ms; one of them died "
                    "or cannot be reached",
                    place.rank, place.ranks, deadline.count()),
        "nccl"};
  }
  thread.join();
  LONGSPAN_TRY(ncclComm_t communicator, joined.get());
  return std::unique_ptr<NcclHandle>(new NcclHandle(std::move(api), communicator));
}

NcclHandle::~NcclHandle() {
  if (communicator_ != nullptr) api_->comm_destroy(communicator_);
}

Status NcclHandle::post(std::span<const Transfer> transfers, Stream stream) {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) {
    return Error{ErrorCode::kPeerLost, "the transfers of this rank were ended", "nccl"};
  }
  return post_group(*api_, communicator_, transfers, stream);
}

std::optional<Error> NcclHandle::lost() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || communicator_ == nullptr) return std::nullopt;
  ncclResult_t state = ncclSuccess;
  ncclResult_t asked = api_->comm_async_error(communicator_, &state);
  if (asked == ncclSuccess) asked = state == ncclInProgress ? ncclSuccess : state;
  if (asked == ncclSuccess) return std::nullopt;
  return Error{ErrorCode::kPeerLost,
               fmt::format("NCCL lost a peer or its connection: {} ({})", api_->error_string(asked),
                           api_->last_error(nullptr)),
               "nccl"};
}

void NcclHandle::end() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || communicator_ == nullptr) return;
  api_->comm_abort(communicator_);
  communicator_ = nullptr;
}

}  // namespace longspan::comm
