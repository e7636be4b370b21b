#include "comm/nccl/make.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "comm/check_transfers.h"
#include "comm/meet_by_file.h"
#include "comm/nccl/cards.h"
#include "comm/nccl/communicator.h"
#include "cuda/identity.h"
#include "longspan/device.h"

namespace longspan {
namespace comm {
namespace {

/// What this rank brings along. A rank that cannot go on tells the others before it says why.
struct Local {
  std::shared_ptr<const NcclApi> api;
  NcclCard card;
  Status status;
};

Status prepare(const Device& device, const NcclSettings& settings, bool makes_id, Local& local) {
  if (!device.is_cuda()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("device {} is no CUDA device; use the threads or mpi communicator",
                             device.name),
                 "nccl"};
  }
  LONGSPAN_TRY(local.api, open_nccl(settings.library));
  LONGSPAN_TRY(local.card.gpu, cuda::identity(device.ordinal));
  local.card.version = local.api->version;
  if (makes_id) {
    LONGSPAN_TRY(local.card.id, make_nccl_id_words(*local.api));
  }
  local.card.ready = true;
  return {};
}

Local prepared(const Device& device, const NcclSettings& settings, bool makes_id) {
  Local local;
  local.status = prepare(device, settings, makes_id, local);
  return local;
}

Status check_host(const Communicator* host) {
  if (host != nullptr && !host->on_device()) return {};
  return Error{ErrorCode::kInvalidArgument,
               "host is no communicator of host memory; use mpi, threads or callback", "nccl"};
}

Status check_member(const NcclMember& member) {
  if (member.rank >= 0 && member.rank < member.topology.ranks()) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("rank {} is not in the topology, which has {} ranks", member.rank,
                           member.topology.ranks()),
               "nccl"};
}

/// Joins without a host communicator.
Result<std::shared_ptr<Communicator>> join_member(std::shared_ptr<const NcclApi> api,
                                                  const NcclIdWords& id, const NcclMember& member,
                                                  int ordinal) {
  LONGSPAN_TRY(
      auto handle,
      NcclHandle::join(
          std::move(api),
          {.id = id, .rank = member.rank, .ranks = member.topology.ranks(), .ordinal = ordinal},
          member.settings.deadline));
  return NcclCommunicator::make(
      std::move(handle), nullptr,
      {.topology = member.topology, .rank = member.rank, .ordinal = ordinal});
}

}  // namespace

Result<std::shared_ptr<Communicator>> join_part(std::shared_ptr<const NcclApi> api,
                                                Communicator& whole, const SplitGroup& part,
                                                std::shared_ptr<Communicator> host, int ordinal) {
  NcclIdWords mine = {};
  if (part.rank == 0) {
    LONGSPAN_TRY(mine, make_nccl_id_words(*api));
  }
  LONGSPAN_TRY(const std::vector<uint64_t> all, exchange_words(whole, mine, kSplitDeadline));
  NcclHandle::Place place{.rank = part.rank, .ranks = part.topology.ranks(), .ordinal = ordinal};
  const auto leader = static_cast<size_t>(part.members.front());
  std::copy_n(all.begin() + static_cast<ptrdiff_t>(leader * mine.size()), mine.size(),
              place.id.begin());
  LONGSPAN_TRY(auto handle, NcclHandle::join(std::move(api), place, kSplitDeadline));
  return NcclCommunicator::make(std::move(handle), std::move(host),
                                {.topology = part.topology, .rank = part.rank, .ordinal = ordinal});
}

}  // namespace comm

Result<std::string> nccl_description(const NcclSettings& settings) {
  LONGSPAN_TRY(const auto api, comm::open_nccl(settings.library));
  return fmt::format("NCCL {} ({})", comm::nccl_version_text(api->version), api->path);
}

Result<NcclId> make_nccl_id(const NcclSettings& settings) {
  LONGSPAN_TRY(const auto api, comm::open_nccl(settings.library));
  LONGSPAN_TRY(const comm::NcclIdWords words, comm::make_nccl_id_words(*api));
  NcclId id;
  static_assert(sizeof id == sizeof words);
  std::memcpy(id.data(), words.data(), sizeof id);
  return id;
}

Result<std::shared_ptr<Communicator>> make_nccl_communicator(std::shared_ptr<Communicator> host,
                                                             const Device& device,
                                                             const NcclSettings& settings) {
  LONGSPAN_CHECK_OK(comm::check_host(host.get()));
  const comm::Local local = comm::prepared(device, settings, host->rank() == 0);
  LONGSPAN_TRY(const std::vector<uint64_t> words,
               exchange_words(*host, comm::words_of(local.card), settings.deadline));
  LONGSPAN_CHECK_OK(local.status);
  LONGSPAN_TRY(const comm::NcclIdWords id, comm::agreed_id(words));
  LONGSPAN_TRY(
      auto handle,
      comm::NcclHandle::join(
          local.api,
          {.id = id, .rank = host->rank(), .ranks = host->size(), .ordinal = device.ordinal},
          settings.deadline));
  return comm::NcclCommunicator::make(
      std::move(handle), host,
      {.topology = host->topology(), .rank = host->rank(), .ordinal = device.ordinal});
}

Result<std::shared_ptr<Communicator>> make_nccl_communicator(const NcclId& id,
                                                             const NcclMember& member,
                                                             const Device& device) {
  LONGSPAN_CHECK_OK(comm::check_member(member));
  const comm::Local local = comm::prepared(device, member.settings, false);
  LONGSPAN_CHECK_OK(local.status);
  comm::NcclIdWords words = {};
  std::memcpy(words.data(), id.data(), sizeof words);
  return comm::join_member(local.api, words, member, device.ordinal);
}

Result<std::shared_ptr<Communicator>> make_nccl_communicator(const std::string& path,
                                                             const NcclMember& member,
                                                             const Device& device) {
  LONGSPAN_CHECK_OK(comm::check_member(member));
  const comm::FileMeeting meeting{.path = path,
                                  .rank = member.rank,
                                  .size = member.topology.ranks(),
                                  .deadline = member.settings.deadline};
  const comm::Local local = comm::prepared(device, member.settings, member.rank == 0);
  LONGSPAN_TRY(const std::vector<uint64_t> words,
               comm::meet_by_file(meeting, comm::words_of(local.card)));
  LONGSPAN_CHECK_OK(local.status);
  LONGSPAN_TRY(const comm::NcclIdWords id, comm::agreed_id(words));
  auto joined = comm::join_member(local.api, id, member, device.ordinal);
  if (joined.ok()) comm::leave_meeting(meeting);  // all ranks have read it
  return joined;
}

}  // namespace longspan
