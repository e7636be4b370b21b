#include "comm/mpi/communicator.h"

#include <fmt/format.h>
#include <mpi.h>

#include <map>
#include <utility>
#include <vector>

#include "comm/host_memory.h"
#include "comm/mpi/channel.h"
#include "comm/mpi/runtime.h"
#include "comm/split_group.h"

namespace longspan {
namespace comm {
namespace {

constexpr size_t kLargestPiece = size_t{1} << 30;

/// An MPI communicator for collective calls, freed when that is safe.
class Base {
 public:
  Base(std::shared_ptr<MpiRuntime> runtime, MPI_Comm communicator)
      : runtime_(std::move(runtime)), communicator_(communicator) {}
  ~Base() {
    if (!runtime_->lost() && !MpiRuntime::finalized()) MPI_Comm_free(&communicator_);
  }
  Base(const Base&) = delete;
  Base& operator=(const Base&) = delete;

  MPI_Comm get() const { return communicator_; }
  const std::shared_ptr<MpiRuntime>& runtime() const { return runtime_; }

 private:
  std::shared_ptr<MpiRuntime> runtime_;
  MPI_Comm communicator_;
};

class MpiCommunicator final : public Communicator {
 public:
  /// Collective over `base`.
  static Result<std::shared_ptr<Communicator>> make(std::unique_ptr<Base> base, int rank,
                                                    Topology topology, size_t piece_bytes) {
    // The channel probes for any message, so it shares its communicator with nobody.
    MPI_Comm own = MPI_COMM_NULL;
    LONGSPAN_CHECK_OK(mpi_check(MPI_Comm_dup(base->get(), &own), "MPI_Comm_dup"));
    return std::shared_ptr<Communicator>(std::shared_ptr<MpiCommunicator>(
        new MpiCommunicator(std::move(base), own, rank, std::move(topology), piece_bytes)));
  }

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return topology_.ranks(); }
  const Topology& topology() const override { return topology_; }

  Result<void*> allocate(size_t bytes) override { return memory_.allocate(bytes, "mpi"); }
  void release(void* data) override { memory_.release(data); }
  Status register_buffer(void*, size_t) override { return {}; }
  void deregister_buffer(void*) override {}

  Result<Request> start(std::span<const Transfer> transfers) override {
    return channel_.start(transfers);
  }
  Status wait(Request request, std::chrono::milliseconds deadline) override {
    return channel_.wait(request, deadline);
  }
  void abandon(const Error& reason) override { channel_.abandon(reason.text()); }

  Result<std::shared_ptr<Communicator>> split(int color, int key) override {
    LONGSPAN_TRY(SplitGroup group, agree_on_split(*this, color, key));
    // Everybody has just answered. MPI's colours must not be negative: the first member stands in.
    MPI_Comm part = MPI_COMM_NULL;
    LONGSPAN_CHECK_OK(mpi_check(
        MPI_Comm_split(base_->get(), group.members.front(), group.rank, &part), "MPI_Comm_split"));
    return make(std::make_unique<Base>(base_->runtime(), part), group.rank,
                std::move(group.topology), piece_bytes_);
  }

 private:
  MpiCommunicator(std::unique_ptr<Base> base, MPI_Comm own, int rank, Topology topology,
                  size_t piece_bytes)
      : base_(std::move(base)),
        channel_(base_->runtime(), own, piece_bytes),
        rank_(rank),
        topology_(std::move(topology)),
        piece_bytes_(piece_bytes) {}

  std::unique_ptr<Base> base_;
  MpiChannel channel_;
  int rank_;
  Topology topology_;
  size_t piece_bytes_;
  HostMemory memory_;
};

/// Ranks that share memory share a node; nodes are numbered by their first rank.
Result<Topology> topology_by_host(MPI_Comm communicator, int rank, int ranks) {
  MPI_Comm host = MPI_COMM_NULL;
  LONGSPAN_CHECK_OK(
      mpi_check(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
                "MPI_Comm_split_type"));
  int first = rank;
  const int reduced = MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, host);
  MPI_Comm_free(&host);
  LONGSPAN_CHECK_OK(mpi_check(reduced, "MPI_Allreduce"));

  std::vector<int> first_of_rank(static_cast<size_t>(ranks));
  LONGSPAN_CHECK_OK(
      mpi_check(MPI_Allgather(&first, 1, MPI_INT, first_of_rank.data(), 1, MPI_INT, communicator),
                "MPI_Allgather"));
  std::map<int, int> numbers;
  Topology topology;
  for (const int leader : first_of_rank) {
    const int next = static_cast<int>(numbers.size());
    topology.node_of_rank.push_back(numbers.emplace(leader, next).first->second);
  }
  return topology;
}

Status check_settings(const MpiSettings& settings) {
  if (settings.nodes < 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("nodes is {}; it must be 0 (by host) or more", settings.nodes), "mpi"};
  }
  if (settings.piece_bytes == 0 || settings.piece_bytes > kLargestPiece) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("piece_bytes is {}; it must be 1 to {}", settings.piece_bytes, kLargestPiece),
        "mpi"};
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Communicator>> make_mpi(const MpiSettings& settings) {
  LONGSPAN_CHECK_OK(check_settings(settings));
  LONGSPAN_TRY(std::shared_ptr<MpiRuntime> runtime, MpiRuntime::get());
  MPI_Comm duplicate = MPI_COMM_NULL;
  LONGSPAN_CHECK_OK(mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &duplicate), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN);
  auto base = std::make_unique<Base>(runtime, duplicate);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(duplicate, &rank);
  MPI_Comm_size(duplicate, &ranks);
  if (settings.nodes > 0) {
    return MpiCommunicator::make(std::move(base), rank, Topology::blocks(ranks, settings.nodes),
                                 settings.piece_bytes);
  }
  LONGSPAN_TRY(Topology topology, topology_by_host(duplicate, rank, ranks));
  return MpiCommunicator::make(std::move(base), rank, std::move(topology), settings.piece_bytes);
}

}  // namespace comm

Result<std::shared_ptr<Communicator>> make_mpi_communicator(int nodes) {
  return comm::make_mpi({.nodes = nodes});
}

}  // namespace longspan
