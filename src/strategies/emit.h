// What the strategies share: heads exchanged inside groups of ranks, keys and values between them.
//
// Ranks form `rings` groups of `ways` neighbours. Inside a group an all-to-all gives every member
// all of the group's tokens for a share of the heads; between groups, members with the same share
// exchange keys and values. ways = 1 is a plain ring, rings = 1 a plain all-to-all.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longspan/schedule.h"
#include "schedule/builder.h"
#include "strategies/group.h"

namespace longspan {

struct Arrangement {
  int ways = 1;
  int rings = 1;
  bool gather = false;  // keys and values arrive in one exchange instead of rings - 1 steps
};

/// The decline of an invariant problem by strategies that split keys over `groups` > 1 of ranks.
std::optional<Decline> varies_with_ranks(const Setting& setting, std::string_view strategy,
                                         int groups);

/// The decline of a problem for which no schedule of capacities can be right.
std::optional<Decline> needs_known_lengths(const Problem& problem);

/// The schedule of one rank and direction. ways * rings == ranks.
Schedule emit(const Setting& setting, Direction direction, int rank, std::string_view strategy,
              Arrangement arrangement);

/// Tags keep the exchanges of a call apart; inside one, messages match in order.
enum Tag : uint32_t {
  kToHeads = 1,
  kFromHeads = 2,
  kKeysValues = 3,
  kPartialGradients = 4,
  kMaxima = 5
};

/// One group member's valid tokens of one side.
struct MemberRows {
  Rows compact;               // without gaps, as they travel
  std::vector<Place> places;  // of each run in head layout
};

/// The state of one emission.
struct Emission {
  Emission(const Setting& setting, Direction direction, int rank, std::string_view strategy,
           Arrangement arrangement);

  /// From here on `share` is the heads of slice `index`, which has exchange buffers of its own.
  void select(int index);
  /// Distinguishes the buffers of slices by name.
  std::string label() const { return slices > 1 ? "." + std::to_string(slice) : ""; }
  /// The share of another member in the selected slice.
  HeadShare share_of(int other_member) const;
  int member_rank(int member) const { return group * arrangement.ways + member; }
  int group_rank(int other_group) const { return other_group * arrangement.ways + member; }
  /// Tokens that the attend steps of a group's members work on.
  Rows group_rows(SideOf side, int group) const;
  /// A buffer over the attend rows of q or k (by quantity) for this rank's heads.
  Buffer head_buffer(Quantity quantity, DType dtype, std::string name) const;
  /// The tensor of the call.
  BufferId operand(Quantity quantity, DType dtype);
  BufferId workspace(Buffer buffer);
  int64_t dim_of(Quantity quantity) const;

  const Setting& setting;
  const Problem& problem;
  Direction direction;
  int rank;
  Arrangement arrangement;
  int group;
  int member;
  int slices;         // of the member's heads, exchanged and computed one after the other
  int slice = 0;      // the selected one
  HeadShare share;    // its heads
  Rows own_q, own_k;  // valid rows of this rank's tensors
  Rows q, k;          // rows that attend works on: the own ones, or all of the group's
  std::vector<MemberRows> q_members, k_members;  // of the group; empty when ways is 1
  Builder builder;
  std::vector<std::pair<RegionId, RegionId>> exchanges;  // send, recv of each slice, both ways
  bool gathers;  // one part has the keys of all ranks; forward's attend brings them itself
  Meeting own;   // where the rows that attend works on meet: with all ranks' keys where it gathers
  bool whole_o;  // forward writes its results instead of adding to them
  bool whole_gradients;  // and so does backward (Features::whole)
  std::map<Quantity, BufferId> operands;
};

/// The keys of all ranks, in order of the tokens.
Rows all_keys(const Setting& setting);

bool is_key_side(Quantity quantity);  // rows are keys, heads are key heads
inline SideOf side_of(Quantity quantity) {
  return is_key_side(quantity) ? SideOf::kKey : SideOf::kQuery;
}

/// From a buffer in sequence layout to one in head layout, or back.
struct Move {
  BufferId from = kNone;
  BufferId to = kNone;
};

/// An exchange under way: what is left to do once it has arrived.
struct Arrival {
  std::vector<Copy> own, unpack;
  std::vector<Move> sums;                    // moves whose parts are added at their owner
  std::vector<std::vector<BufferId>> parts;  // of each sum, by member; kNone: the own or none
};
/// Packs and sends one exchange of the selected slice from sequence layout to head layout inside
/// the group.
Arrival send_to_heads(Emission& emission, const std::vector<Move>& moves);
/// One exchange back. Results are converted to the type of their target before they travel,
/// except dk and dv of shared key heads, which are added at their owner in accumulator type.
Arrival send_from_heads(Emission& emission, const std::vector<Move>& moves);
/// Unpacks what has arrived.
void take(Emission& emission, Arrival arrival);

/// A workspace buffer for the largest logits of this rank's heads; none unless they are asked for.
BufferId max_logit_buffer(Emission& emission);
/// Brings the largest logits of all ranks to the operand: every rank tells every other.
void reduce_max_logit(Emission& emission, BufferId own);

/// Copies valid rows between two buffers whose rows are `rows`.
std::vector<Copy> copy_rows(const Rows& rows, BufferId from, BufferId to, int64_t heads);
/// Adds copies of the tokens that buffers of other rows share: shared_rows(), from a to b.
void add_copies(std::vector<Copy>& copies, const std::vector<SharedRows>& rows, BufferId from,
                BufferId to, int64_t heads);

/// delta = rowsum(dout * O) of a 16-bit O is off by the rounding of O. Where few keys have weight,
/// dq and dk are small differences and that error would be most of them, so forward keeps O as it
/// was accumulated. Where rows are long O is small beside v, and so is that error; O of other types
/// is exact as returned.
bool keeps_exact_o(const Setting& setting);
/// Emission::whole_o, and after it Emission::whole_gradients.
bool writes_whole_o(const Emission& emission);
bool writes_whole_gradients(const Emission& emission);
/// Valid rows that no tile works on, of a buffer of queries or keys.
std::vector<Fill> unattended(const Emission& emission, BufferId buffer);

/// Buffers of the attend steps.
struct AttendBuffers {
  BufferId q = kNone, k = kNone, v = kNone;
  BufferId o = kNone, lse = kNone;
  BufferId max_logit = kNone;
  BufferId dout = kNone, delta = kNone, dq = kNone, dk = kNone, dv = kNone;
};

/// Emits all attend steps and what moves keys, values and their partial gradients between groups.
/// Returns the most key rows of any part.
int64_t attend_all(Emission& emission, const AttendBuffers& buffers);
/// The same where attend pulls keys and values: one attend step, which writes whole results.
int64_t attend_pulled(Emission& emission, const AttendBuffers& buffers);

}  // namespace longspan
