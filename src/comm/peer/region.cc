#include "comm/peer/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/errors.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "peer";

static_assert(std::atomic<uint32_t>::is_always_lock_free);

size_t cards_bytes(int ranks) { return static_cast<size_t>(ranks) * sizeof(Card); }

size_t bytes_of(int ranks) {
  const auto count = static_cast<size_t>(ranks);
  return cards_bytes(ranks) + count * count * sizeof(Route);
}

Error failed(const char* what, const std::string& name) {
  return {ErrorCode::kDriver,
          fmt::format("{} shared memory {}: {}; ranks of peer share /dev/shm of one host", what,
                      name, std::strerror(errno)),
          kWhere};
}

/// A lock on the byte of a rank. It belongs to the open file: the system gives it back when the
/// last process that has it open ends, however that ends.
struct flock seat_of(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

/// In which process ids are counted. 0 where the system does not say.
uint64_t space_of_processes() {
  struct stat space = {};
  return stat("/proc/self/ns/pid", &space) == 0 ? static_cast<uint64_t>(space.st_ino) : 0;
}

}  // namespace

uint64_t process_number() { return space_of_processes() << 32 | static_cast<uint32_t>(getpid()); }

Result<std::unique_ptr<Region>> Region::map(const std::string& name, int flags, int ranks) {
  const int file = shm_open(name.c_str(), flags, S_IRUSR | S_IWUSR);
  if (file < 0) return failed("opening", name);
  std::unique_ptr<Region> region(new Region(file, ranks));
  const size_t bytes = bytes_of(ranks);
  const bool creates = (flags & O_CREAT) != 0;
  const auto given_up = [&](const char* what) {
    Error error = failed(what, name);
    if (creates) remove(name);
    return error;
  };
  if (creates && ftruncate(file, static_cast<off_t>(bytes)) != 0) return given_up("sizing");
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return given_up("mapping");
  region->memory_ = memory;
  region->cards_ = static_cast<Card*>(memory);
  region->routes_ = reinterpret_cast<Route*>(static_cast<std::byte*>(memory) + cards_bytes(ranks));
  return region;
}

Result<std::unique_ptr<Region>> Region::create(const std::string& name, int ranks) {
  return map(name, O_RDWR | O_CREAT | O_EXCL, ranks);
}

Result<std::unique_ptr<Region>> Region::open(const std::string& name, int ranks) {
  return map(name, O_RDWR, ranks);
}

Region::~Region() {
  if (memory_ != nullptr) munmap(memory_, bytes_of(ranks_));
  close(file_);
}

void Region::remove(const std::string& name) { shm_unlink(name.c_str()); }

Status Region::sit(int rank) {
  struct flock lock = seat_of(rank);
  if (fcntl(file_, F_OFD_SETLK, &lock) != 0) return failed("locking", "of the group");
  return {};
}

bool Region::alive(int rank) const {
  struct flock lock = seat_of(rank);
  return fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void Region::leave(int rank, Card::State state, const std::string& reason) {
  Card& own = card(rank);
  uint32_t here = Card::kHere;
  if (!own.state.compare_exchange_strong(here, Card::kLeaving)) return;
  const size_t length = std::min(reason.size(), own.reason.size() - 1);
  std::memcpy(own.reason.data(), reason.data(), length);
  own.reason[length] = '\0';
  own.state.store(state, std::memory_order_release);
}

std::optional<Error> Region::departed(int rank) const {
  const uint32_t state = card(rank).state.load(std::memory_order_acquire);
  if (state != Card::kReleased && state != Card::kGaveUp) return std::nullopt;
  return left_peer(rank, card(rank).reason.data(), kWhere);
}

std::optional<Error> Region::lost(int rank) const {
  const bool ended = !alive(rank);  // asked first: who ends in order says so before
  const uint32_t state = card(rank).state.load(std::memory_order_acquire);
  if (state == Card::kReleased) return std::nullopt;
  if (state == Card::kGaveUp) return departed(rank);
  if (!ended) return std::nullopt;
  return left_peer(rank, "its process ended", kWhere);
}

}  // namespace longspan::comm
