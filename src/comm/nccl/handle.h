// One rank's handle of NCCL: joined, used and ended here alone.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "comm/nccl/library.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// What all ranks of a group know before they join it, as words.
using NcclIdWords = std::array<uint64_t, NCCL_UNIQUE_ID_BYTES / sizeof(uint64_t)>;

Result<NcclIdWords> make_nccl_id_words(const NcclApi& api);

/// post() and the destructor belong to the rank's thread; lost() and end() to any.
class NcclHandle {
 public:
  struct Place {
    NcclIdWords id = {};
    int rank = 0;
    int ranks = 1;
    int ordinal = 0;  // of the CUDA device
  };

  /// Collective. All pairs of ranks are connected on return, so that post() never waits for a peer.
  /// peer_lost when that took longer than `deadline`; a thread then still waits for them.
  static Result<std::unique_ptr<NcclHandle>> join(std::shared_ptr<const NcclApi> api,
                                                  const Place& place,
                                                  std::chrono::milliseconds deadline);
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  const std::shared_ptr<const NcclApi>& api() const { return api_; }

  /// Queues the transfers on the stream as one group: none of them waits for another. Messages of a
  /// pair of ranks match in their order.
  Status post(std::span<const Transfer> transfers, Stream stream);

  /// The failure that NCCL has noticed by itself, or none.
  std::optional<Error> lost();
  /// Ends what the device waits for; post() fails from now on. May have to be called again while
  /// another thread posts.
  void end();

 private:
  NcclHandle(std::shared_ptr<const NcclApi> api, ncclComm_t communicator)
      : api_(std::move(api)), communicator_(communicator) {}

  std::shared_ptr<const NcclApi> api_;
  std::mutex mutex_;  // guards the handle: posting, asking and ending exclude each other
  ncclComm_t communicator_;
};

}  // namespace longspan::comm
