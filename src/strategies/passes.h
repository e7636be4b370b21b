// What a rank exchanges with the groups of each distance. Internal to attend_all.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "strategies/emit.h"

namespace longspan {

/// Dealings with the groups `distance` places away.
struct Pass {
  int source = 0;    // rank whose keys this rank needs
  int user = 0;      // rank that needs this rank's keys
  Meeting incoming;  // own queries and the source's keys
  Meeting outgoing;  // the user's queries and own keys
};

/// Regions of buffers that are in use at the same time; a ring alternates between two of each.
struct Slot {
  RegionId recv, send, partial_send, partial_recv;
};

class Passes {
 public:
  Passes(Emission& e, const AttendBuffers& buffers) : e_(e), b_(buffers) {}

  /// Emits all steps. Returns the most key rows of any part.
  int64_t run();

 private:
  bool backward() const { return e_.direction == Direction::kBackward; }
  Pass pass(int distance) const;
  Slot slot();
  BufferId place(RegionId region, Quantity quantity, DType dtype, const Rows& rows,
                 std::string_view role, int peer);
  std::vector<Copy> needed_rows(const Meeting& meeting, BufferId own, BufferId message,
                                bool to_message) const;
  /// Packs the keys and values that a user needs.
  Message pack_keys(const Pass& pass, RegionId region);
  /// Where the source's keys and values arrive, and the tiles on them.
  std::pair<Message, Part> receive_keys(const Pass& pass, RegionId region);
  /// Places partial gradients of the part's keys, in backward.
  void place_partials(const Pass& pass, Part& part, RegionId region);
  std::vector<Fill> zeros(const Part& part) const;
  /// To the owner of the part's keys.
  static Message send_partials(const Pass& pass, const Part& part);
  /// Where a user's partial gradients of own keys arrive, and how they are added.
  std::pair<Message, std::vector<Copy>> receive_partials(const Pass& pass, RegionId region);
  void attend(std::vector<Part> parts);

  void ring();
  void gather();
  /// Sends and fetches keys in one exchange. Returns what arrives, by pass.
  std::vector<Part> exchange_keys(const Slot& at);
  /// Sends those of parts, by pass, and fetches own ones. Returns how they are added.
  std::vector<Copy> exchange_partials(const std::vector<Part>& parts, const Slot& at);

  /// As gather(), with one part of all keys, in order of the tokens, whose results are whole.
  void gather_whole();
  Part gathered_part();
  void gather_keys(const Part& all, const std::vector<Part>& parts);
  void pack_partials(const Part& all, const std::vector<Part>& parts);
  /// Own rows that others add to, and the rest.
  std::pair<Rows, Rows> own_rows() const;
  void own_gradients(const Part& all, const Rows& rows, BufferId dk, BufferId dv);

  Emission& e_;
  const AttendBuffers& b_;
  Part own_;
  std::vector<Pass> passes_;
  int64_t key_rows_ = 0;
};

}  // namespace longspan
