#include "comm/peer/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "comm/check_transfers.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "peer";

/// The same on all ranks of a host, until it boots again.
uint64_t host_number() {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  return std::hash<std::string>()(text);
}

uint64_t random_number() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

/// The own failure, else one that says who failed.
Status agree(Communicator& host, const Status& mine) {
  const uint64_t failed = mine.ok() ? 0 : 1;
  const auto all = exchange_words(host, {&failed, 1}, kSplitDeadline);
  LONGSPAN_CHECK_OK(mine);
  if (!all.ok()) return all.error();
  const auto first = std::find(all->begin(), all->end(), 1);
  if (first == all->end()) return {};
  return Error{
      ErrorCode::kPeerLost,
      fmt::format("rank {} could not join the group; its own error says why", first - all->begin()),
      kWhere};
}

/// The name of the group's memory; an error where ranks are on other hosts than rank 0.
Result<std::string> agree_on_name(Communicator& host) {
  const std::array<uint64_t, 2> mine = {host_number(), random_number()};
  LONGSPAN_TRY(const std::vector<uint64_t> all, exchange_words(host, mine, kSplitDeadline));
  std::vector<int> elsewhere;
  for (int rank = 0; rank < host.size(); ++rank) {
    if (all[2 * static_cast<size_t>(rank)] != all[0]) elsewhere.push_back(rank);
  }
  if (elsewhere.empty()) return fmt::format("/longspan-{:016x}", all[1]);
  return Error{ErrorCode::kUnsupported,
               fmt::format("ranks {} are on another host than rank 0; peer joins ranks of one host",
                           fmt::join(elsewhere, ", ")),
               kWhere};
}

Status enter(Meeting& meeting, const std::string& name, const Communicator& host, int ordinal) {
  if (!meeting.region) {
    LONGSPAN_TRY(meeting.region, Region::open(name, host.size()));
  }
  Card& card = meeting.region->card(host.rank());
  card.process = process_number();
  card.ordinal = ordinal;
  LONGSPAN_TRY(card.bus_address, cuda::bus_address(ordinal));
  return meeting.region->sit(host.rank());
}

/// Shared memory in which every rank has its seat.
Status enter_region(Meeting& meeting, Communicator& host, int ordinal) {
  LONGSPAN_TRY(const std::string name, agree_on_name(host));
  Status made;
  if (host.rank() == 0) {
    auto region = Region::create(name, host.size());
    if (region.ok()) {
      meeting.region = std::move(region).value();
    } else {
      made = region.error();
    }
  }
  Status entered = agree(host, made);
  if (entered.ok()) entered = agree(host, enter(meeting, name, host, ordinal));
  if (host.rank() == 0 && made.ok()) Region::remove(name);  // also where the others do not come
  return entered;
}

/// Tells the peers where this rank's flags are, all 0.
Status show_flags(Meeting& meeting, const Communicator& host, std::shared_ptr<void>& owner) {
  const size_t bytes = Flags::words(host.size()) * sizeof(uint32_t);
  LONGSPAN_TRY(cuda::Memory memory, cuda::Memory::make(bytes));
  LONGSPAN_CHECK_OK(cuda::fill(memory.data(), 0, bytes));
  const auto shared = std::make_shared<cuda::Memory>(std::move(memory));
  owner = std::shared_ptr<void>(shared, shared->data());
  Card& card = meeting.region->card(host.rank());
  LONGSPAN_TRY(card.flags, meeting.memory->name_of(owner.get()));
  card.flags_owner = reinterpret_cast<uint64_t>(&owner);
  return {};
}

Status find_flags(Meeting& meeting, int rank, int ordinal) {
  std::vector<uint32_t*> words;
  int sharing = 0;
  int on_bus = 0;
  const uint64_t own_address = meeting.region->card(rank).bus_address;
  for (int peer = 0; peer < meeting.region->ranks(); ++peer) {
    const Card& card = meeting.region->card(peer);
    on_bus += card.bus_address == own_address ? 1 : 0;
    if (card.process == process_number()) {
      sharing += card.ordinal == ordinal ? 1 : 0;
      LONGSPAN_CHECK_OK(cuda::enable_peer(ordinal, card.ordinal));
      meeting.keepers.push_back(*reinterpret_cast<std::shared_ptr<void>*>(card.flags_owner));
    }
    LONGSPAN_TRY(void* const data, meeting.memory->reach(peer, card.flags, true));
    words.push_back(static_cast<uint32_t*>(data));
  }
  meeting.flags = Flags(std::move(words));
  meeting.shares_device = sharing > 1;
  meeting.shares_bus_address = on_bus > 1;
  return {};
}

bool has_other_processes(const Region& region) {
  for (int rank = 0; rank < region.ranks(); ++rank) {
    if (region.card(rank).process != process_number()) return true;
  }
  return false;
}

}  // namespace

Result<Meeting> meet(Communicator& host, int ordinal) {
  auto lane = cuda::OwnedStream::make();
  LONGSPAN_CHECK_OK(agree(host, lane.ok() ? Status() : Status(lane.error())));
  Meeting meeting{.region = nullptr,
                  .lane = std::move(lane).value(),
                  .memory = nullptr,
                  .flags = {},
                  .shares_device = false,
                  .shares_bus_address = false,
                  .keepers = {}};
  LONGSPAN_CHECK_OK(enter_region(meeting, host, ordinal));
  meeting.memory = std::make_unique<MemoryMap>(host.size(), meeting.lane.get(),
                                               has_other_processes(*meeting.region));
  std::shared_ptr<void> owner;  // until all have copied it
  LONGSPAN_CHECK_OK(agree(host, show_flags(meeting, host, owner)));
  LONGSPAN_CHECK_OK(agree(host, find_flags(meeting, host.rank(), ordinal)));
  return Result<Meeting>(std::move(meeting));
}

}  // namespace longspan::comm
