// Memory of one host that all ranks of a group share: who is there, and mail between them. The same
// for ranks that are threads and for ranks that are processes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "longspan/status.h"

namespace longspan::comm {

/// Messages in flight between two ranks at a time, those of captured graphs included.
inline constexpr int kSlots = 4096;

/// No other process of the host has the same, in whichever container it is: there every one may
/// have a process 1.
uint64_t process_number();

/// Where memory of a rank is, for its peers.
struct MemoryName {
  uint64_t process = 0;  // whose address space
  uint64_t address = 0;  // there
  uint64_t base = 0;     // of the allocation around it, and likewise below
  uint64_t allocation = 0;
  std::array<std::byte, 64> handle{};  // with which other processes map it
};

/// The memory that a receiver offers for a message, and what the sender answers.
struct alignas(64) Mail {
  enum State : uint32_t { kPosted, kTaken, kRefused };
  std::atomic<uint32_t> state;
  uint32_t tag;
  uint32_t captured;  // into a graph, by its receiver
  uint64_t bytes;
  uint64_t sent;  // what a sender that refused it wanted to send
  MemoryName data;
};

/// The mail from one rank to another; each slot is in `posted` at most once.
struct alignas(64) Route {
  std::atomic<uint32_t> count;  // of slots ever posted
  std::array<uint32_t, kSlots> posted;
  std::array<Mail, kSlots> slots;
};

/// What a rank tells everybody.
struct alignas(64) Card {
  enum State : uint32_t { kHere, kLeaving, kReleased, kGaveUp };
  std::atomic<uint32_t> state;
  std::array<char, 1000> reason;  // of leaving, with a zero at its end
  uint64_t process;
  int32_t ordinal;       // of its device
  uint64_t bus_address;  // of it
  MemoryName flags;
  uint64_t flags_owner;  // a std::shared_ptr<void>*, for ranks of the same process
};

/// One rank's mapping. Thread-safe.
class Region {
 public:
  /// Makes the memory, under a name that nobody uses.
  static Result<std::unique_ptr<Region>> create(const std::string& name, int ranks);
  static Result<std::unique_ptr<Region>> open(const std::string& name, int ranks);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// Nobody can open it any more; those who have keep it.
  static void remove(const std::string& name);

  /// Takes the seat of a rank: it is alive until the mapping or the process ends.
  Status sit(int rank);
  bool alive(int rank) const;
  /// Only the first counts. `state`: kReleased or kGaveUp.
  void leave(int rank, Card::State state, const std::string& reason);
  /// The peer_lost for a rank that said it leaves, for whatever reason. Cheap.
  std::optional<Error> departed(int rank) const;
  /// The peer_lost for a rank that gave up, or ended without a word.
  std::optional<Error> lost(int rank) const;

  Card& card(int rank) const { return cards_[rank]; }
  Route& route(int source, int destination) const { return routes_[source * ranks_ + destination]; }
  int ranks() const { return ranks_; }

 private:
  Region(int file, int ranks) : file_(file), ranks_(ranks) {}
  static Result<std::unique_ptr<Region>> map(const std::string& name, int flags, int ranks);

  int file_;
  int ranks_;
  void* memory_ = nullptr;
  Card* cards_ = nullptr;
  Route* routes_ = nullptr;
};

}  // namespace longspan::comm
