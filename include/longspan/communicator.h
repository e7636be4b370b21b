// How bytes move between ranks. A communicator never sees a mask or a schedule.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/loan.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

/// Which host each rank runs on.
struct Topology {
  std::vector<int> node_of_rank;  // one entry per rank, nodes numbered from 0

  int ranks() const { return static_cast<int>(node_of_rank.size()); }
  int nodes() const;
  /// `ranks` ranks in `nodes` consecutive blocks as equal as possible.
  static Topology blocks(int ranks, int nodes);
};

/// kLend and kBorrow: nothing is copied; kernels of the borrower read the lender's memory (see
/// Communicator::lends).
enum class TransferKind { kSend, kRecv, kLend, kBorrow };

/// Tags above this one are reserved for the library's own messages.
inline constexpr uint32_t kLargestTag = 0x7fffff00;

/// One side of a message. The pair (peer, tag) matches in order of posting; both sides must state
/// the same number of bytes.
struct Transfer {
  TransferKind kind = TransferKind::kSend;
  int peer = 0;
  uint32_t tag = 0;
  void* data = nullptr;  // a send and a loan do not change it; null for kBorrow
  size_t bytes = 0;
};

/// A set of transfers in flight.
struct Request {
  int64_t id = -1;
};

/// One per rank. Used by one thread at a time. Methods marked collective are called by every rank
/// in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const Topology& topology() const = 0;

  /// Memory that peers can reach fastest, aligned to 64 bytes. Released by release() or with the
  /// communicator. out_of_memory names the size.
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void release(void* data) = 0;
  /// Prepares memory of the caller's for transfers (a no-op where none is needed).
  virtual Status register_buffer(void* data, size_t bytes) = 0;
  virtual void deregister_buffer(void* data) = 0;

  /// Posts transfers and returns at once. Data stays untouched until wait() returned. In steady
  /// state (no more transfers in flight than ever before) nothing is allocated.
  virtual Result<Request> start(std::span<const Transfer> transfers) = 0;
  /// Waits for all transfers of a request, at most until `deadline`. peer_lost when a peer died,
  /// gave up or did not answer in time (the message names it); invalid_argument when the two sides
  /// of a message state different sizes. After an error the communicator is only good for
  /// abandon().
  virtual Status wait(Request request, std::chrono::milliseconds deadline) = 0;

  /// Whether transfers move device memory in stream order: then start_on and wait_on are used
  /// instead of start and wait, and data lies on the device.
  virtual bool on_device() const { return false; }
  /// Whether no other rank computes on this rank's device.
  virtual bool has_own_device() const { return true; }
  /// As start. Sent data is ready, and received memory free, once `stream` gets here.
  virtual Result<Request> start_on(std::span<const Transfer> transfers, Stream stream);
  /// As wait, but returns once `stream` goes on only after the transfers; the host may wait for a
  /// peer to queue its side, never for the device.
  virtual Status wait_on(Request request, Stream stream, std::chrono::milliseconds deadline);
  /// Whether start_on takes loans: one request holds either those or messages. Lent data is ready
  /// once the stream gets to start_on, and free once it goes on after wait_on. Between the two a
  /// borrower asks for its loans and queues the kernel that reads them.
  virtual bool lends() const { return false; }
  /// Whether a loan of this memory can be given; else the error names the address and the remedy.
  virtual Status lendable(const void* data);
  /// The loans of a request, borrowed ones in the order of its kBorrow transfers, once all lenders
  /// have queued theirs; a launch on `stream` must follow. Where ranks share a device the stream
  /// does what is in Loans::lent, and waits for the lenders' data: a kernel that waits would keep
  /// them from computing it. Valid until wait_on. Errors of wait.
  virtual Result<Loans> loans_on(Request request, Stream stream,
                                 std::chrono::milliseconds deadline);
  /// A failure that was found while no call waited: a peer that died, gave up or did not come in
  /// time while the device worked on transfers. start_on and wait_on return it too. Cheap; may be
  /// asked from any thread.
  virtual Status health() const { return {}; }

  /// Collective: ranks with the same colour form a communicator, ordered by (key, rank).
  virtual Result<std::shared_ptr<Communicator>> split(int color, int key) = 0;

  /// This rank gives up. Peers that wait for it get peer_lost carrying `reason`, at once where the
  /// communicator can tell them, else at their deadline.
  virtual void abandon(const Error& reason) = 0;
};

/// Ranks as threads of this process: one communicator per rank.
std::vector<std::shared_ptr<Communicator>> make_threads_communicators(const Topology& topology);

struct Device;

/// Ranks as threads of this process on CUDA devices, one device for each rank (they may repeat:
/// ranks share a GPU). Senders push with copy engines in stream order, also in captured graphs.
/// unsupported when built without CUDA.
Result<std::vector<std::shared_ptr<Communicator>>> make_peer_communicators(
    const Topology& topology, std::span<const Device> devices);

/// Collective over `host`, a communicator of host memory (mpi, threads, callback) whose ranks are
/// processes or threads of one host; each brings its CUDA device. `host` goes on to carry what the
/// ranks agree on at cold calls. Memory that receives from another process must come from
/// Communicator::allocate or cudaMalloc. unsupported, naming ranks, when they are on several hosts.
Result<std::shared_ptr<Communicator>> make_peer_communicator(std::shared_ptr<Communicator> host,
                                                             const Device& device);

struct NcclSettings {
  /// Path of libnccl.so.2, 2.28 or newer; empty: the one that the process has mapped already, else
  /// the loader's.
  std::string library;
  std::chrono::milliseconds deadline{60000};  // for all ranks to come
};

/// Which NCCL is used: "NCCL 2.28.9 (/usr/lib/libnccl.so.2.28.9)". unsupported says what was tried.
Result<std::string> nccl_description(const NcclSettings& settings = {});

/// Ranks on GPUs of their own, on one host or many; NCCL, which is opened at run time, moves what
/// they exchange. NCCL matches messages of two ranks by their order alone: start_on is called in
/// the order that check() proves for schedules. NVLink multicast must be off
/// (NCCL_NVLS_ENABLE=0 in the environment). A lost peer is noticed at the deadline of wait_on and
/// reported by health().
///
/// Collective over `host`, whose ranks and topology these are. It carries the library's own words
/// from then on and belongs to the new communicator. invalid_argument on all ranks when two of them
/// have one GPU; unsupported says what was tried to find NCCL.
Result<std::shared_ptr<Communicator>> make_nccl_communicator(std::shared_ptr<Communicator> host,
                                                             const Device& device,
                                                             const NcclSettings& settings = {});

/// What ranks of one group share and rank 0 makes.
using NcclId = std::array<std::byte, 128>;
Result<NcclId> make_nccl_id(const NcclSettings& settings = {});

/// Where a rank stands that has no host communicator.
struct NcclMember {
  int rank = 0;
  Topology topology;
  NcclSettings settings;
};

/// Collective. The caller has brought rank 0's id to all ranks. That two ranks have one GPU is
/// NCCL's own error here.
Result<std::shared_ptr<Communicator>> make_nccl_communicator(const NcclId& id,
                                                             const NcclMember& member,
                                                             const Device& device);
/// Collective. Ranks meet by files PATH.0, PATH.1, ... of a file system that all see, and remove
/// them once all are there. invalid_argument when files of another run are in the way.
Result<std::shared_ptr<Communicator>> make_nccl_communicator(const std::string& path,
                                                             const NcclMember& member,
                                                             const Device& device);

/// Ranks of one node (of `topology`) over `inner`, all others over `outer`. inner has the ranks of
/// this rank's node in their order, outer has all; both belong to the new communicator. Both move
/// device memory, or both the host's. invalid_argument when ranks or sizes do not fit.
Result<std::shared_ptr<Communicator>> make_composite_communicator(
    std::shared_ptr<Communicator> inner, std::shared_ptr<Communicator> outer, Topology topology);

/// The process's rank of MPI_COMM_WORLD. Initialises MPI when the program has not; then also
/// finalises it with the last communicator, unless a peer was lost. `nodes` 0: by host name.
/// unsupported when built without LONGSPAN_MPI.
Result<std::shared_ptr<Communicator>> make_mpi_communicator(int nodes = 0);

/// A process group of the caller's own. `start` and `wait` have the meaning of the methods above;
/// the others may be empty: allocate falls back to host memory, register to a no-op, split to
/// unsupported, abandon to nothing.
struct CallbackGroup {
  int rank = 0;
  Topology topology;
  std::function<Result<Request>(std::span<const Transfer>)> start;
  std::function<Status(Request, std::chrono::milliseconds)> wait;
  std::function<Result<CallbackGroup>(int color, int key)> split;
  std::function<Result<void*>(size_t bytes)> allocate;
  std::function<void(void*)> release;
  std::function<Status(void*, size_t)> register_buffer;
  std::function<void(void*)> deregister_buffer;
  std::function<void(const Error&)> abandon;
};

/// invalid_argument when start or wait is missing or the rank is not in the topology.
Result<std::shared_ptr<Communicator>> make_callback_communicator(CallbackGroup group);

/// Collective. Every rank learns every rank's values (`mine` has the same length everywhere), rank
/// by rank.
Result<std::vector<uint64_t>> exchange_words(Communicator& communicator,
                                             std::span<const uint64_t> mine,
                                             std::chrono::milliseconds deadline);

}  // namespace longspan
