// Who computes which tile when, and which bytes move: one list of steps per rank and direction.
// Plain data, built by strategies, proved by check(), priced by cost(), run by the engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/communicator.h"
#include "longspan/decline.h"
#include "longspan/partition.h"
#include "longspan/problem.h"
#include "longspan/provider.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

enum class StepKind {
  kAttend,          // forward tiles into carried O and LSE
  kAttendBackward,  // backward tiles added to dq, dk, dv
  kDelta,           // delta = rowsum(dout * o)
  kSendRecv,        // at most one message to a rank and one from a rank
  kAllGather,       // every rank's keys and values to the ranks that need them
  kReduceScatter,   // every rank's partial gradients to their owners, who add them up
  kAllToAll,        // sequence layout to head layout, or back
  kPack,            // copies into exchange buffers, converting where the types differ
  kUnpack,          // copies out of exchange buffers and accumulators, converting likewise
  kAccumulate,      // adds rows, accumulator type
  kMaximum,         // takes the larger of two rows: max_logit
  kSink,            // the sink logit enters O and LSE
  kSinkGradient,    // dsink of the rows, from LSE and delta
  kFill,            // writes 0, or -inf into lse and max_logit
  kLend,            // copies own keys and values to where peers read them; without effect where
                    // the tensors themselves can be lent
  kPull,            // lent keys and values of peers and of this rank, in order of the tokens: the
                    // attend step that reads them brings them itself
};

/// Compute steps of one queue run in the order of the list; those of different queues at any time
/// that their `after` steps allow. A transfer step starts once its `after` steps are done and is
/// done at some time after that; its queue is the one that it is posted from.
enum class Lane { kCompute, kTransfer };

std::string_view name(StepKind kind);  // "attend", "attend_backward", ...
std::string_view name(Lane lane);

/// Which memory a buffer lies in: tensors of the call, buffers that forward keeps for backward
/// (both the caller's), the workspace, or a peer's workspace: what it lends.
enum class Space { kOperand, kSaved, kWorkspace, kPeer };

/// What the rows of a buffer are. Gradients and O may be partial results in accumulator type.
/// max_logit has one row, which belongs to no token.
enum class Quantity { kQ, kK, kV, kO, kLse, kMaxLogit, kDout, kDelta, kDq, kDk, kDv };

std::string_view name(Space space);
std::string_view name(Quantity quantity);  // "q", "k", ..., "lse", "dout", "delta", "dq", ...

inline constexpr int32_t kNone = -1;

/// [rows, heads, dim] of one type. Workspace buffers are contiguous at `offset`; two of them may
/// share bytes when all uses of the one are done before the first use of the other.
struct Buffer {
  Space space = Space::kWorkspace;
  Quantity quantity = Quantity::kQ;
  std::string name;  // unique in the schedule
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t offset = 0;      // bytes into the workspace
  int64_t head_begin = 0;  // first head held, of the problem's heads
  int peer = kNone;        // of kPeer: whose
  std::vector<Run> runs;   // which tokens the rows hold; rows of no run hold nothing

  int64_t bytes() const { return rows * heads * dim * size_of(dtype); }
};

using BufferId = int32_t;  // index into Schedule::buffers
using StepId = int32_t;    // index into Schedule::steps

/// Rows src_row + i * src_step to rows dst_row + i * dst_step, i in [0, rows), for `heads` heads.
struct Copy {
  BufferId src = kNone;
  BufferId dst = kNone;
  int64_t src_row = 0, src_step = 1;
  int64_t dst_row = 0, dst_step = 1;
  int64_t rows = 0;
  int64_t src_head = 0, dst_head = 0, heads = 0;  // inside the buffers
};

struct Fill {
  BufferId buffer = kNone;
  int64_t row = 0;
  int64_t rows = 0;
};

/// One side of a message: workspace buffers that lie one behind the other, padded to
/// kMessageAlignment each.
struct Message {
  TransferKind kind = TransferKind::kSend;
  int peer = 0;
  uint32_t tag = 0;
  int64_t offset = 0;  // bytes into the workspace
  int64_t bytes = 0;
  std::vector<BufferId> buffers;
};

inline constexpr int64_t kMessageAlignment = 16;

/// The tiles of one arrival.
struct Part {
  StepId after = kNone;  // the transfer step that brings k and v, or none
  BufferId k = kNone, v = kNone;
  BufferId dk = kNone, dv = kNone;  // backward
  std::vector<PlacedTile> tiles;
};

inline constexpr int kMostQueues = 2;

struct Step {
  StepKind kind = StepKind::kFill;
  Lane lane = Lane::kCompute;
  int queue = 0;
  std::vector<StepId> after;                         // earlier steps that must be done
  std::vector<Part> parts;                           // attend, attend_backward
  BufferId q = kNone, o = kNone, lse = kNone;        // attend; o also delta, sink; lse also sinks
                                                     // (backward: o where delta is absent)
  BufferId max_logit = kNone;                        // attend, where it is asked for
  BufferId dout = kNone, delta = kNone, dq = kNone;  // backward, delta
  std::vector<Copy> copies;       // pack, unpack, accumulate, lend, pull; delta: src o (and dout),
                                  // dst delta
  std::vector<Fill> fills;        // sinks: the rows of lse (o and delta have the same)
  std::vector<Message> messages;  // transfer steps
  std::vector<int> readers;       // pull: ranks that pull from this one
};

struct Schedule {
  Direction direction = Direction::kForward;
  std::string strategy;
  int rank = 0;
  int ranks = 1;
  TileProblem tiles;  // what a provider must offer for the attend steps
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  int64_t workspace_bytes = 0;
  int64_t scratch_bytes = 0;  // of the provider, on top, for each queue: known once the engine has
                              // prepared a plan

  /// Pulled bytes count where they are pulled.
  int64_t bytes_sent() const;
  /// Counted FLOPs of this rank's tiles (CONVENTIONS: forward 2 (dim + dim_v), backward
  /// 2 (3 dim + 2 dim_v) per visible pair and query head).
  double flops() const;
  int64_t tile_count() const;
  int queues() const;
};

/// In the place of backward's strategy: forward alone.
inline constexpr std::string_view kNoStrategy = "none";

/// All that a strategy builds from.
struct Setting {
  Problem problem;
  Partition partition;
  Topology topology;
  /// The strategies of both directions: what forward keeps depends on both. Backward may be
  /// kNoStrategy.
  std::string forward;
  std::string backward;
  /// Attend steps may write results instead of adding to them (Features::whole).
  bool whole = false;
  /// Forward's all_gather may pull: the communicator lends, and one provider pulls.
  bool pulls = false;
  /// Backward's all_gather may put all keys that a rank's queries see into one buffer and write
  /// whole gradients of them: those that other ranks add to have 16 bits, which is for providers
  /// whose partial results have no more.
  bool gathers_whole = false;
  /// Exchanges of heads run in this many slices where the heads divide, so that one slice moves
  /// while another is computed.
  int head_slices = 1;
  int64_t score_bytes = 0;  // TileProblem's, of backward
};

/// One file each; see strategies().
struct Strategy {
  std::string_view name;
  std::string_view summary;
  Verdict (*consider)(const Setting& setting, Direction direction);
  Result<Schedule> (*build)(const Setting& setting, Direction direction, int rank);
};

/// ring, all_gather, all_to_all, hybrid, head_parallel.
std::span<const Strategy* const> strategies();
/// invalid_argument names the value and all names.
Result<const Strategy*> find_strategy(std::string_view name);

/// Proves the schedules of all ranks of one direction together: every send meets its recv with
/// equal bytes and contents, and nothing deadlocks even where each rank's transfers run one after
/// the other in the order of the list; every visible pair is computed exactly once per
/// head, from rows that hold its tokens; no buffer is read before it was written, or shares bytes
/// with one still in use; all partial results reach their owner exactly once; every row of every
/// output is written. The error names rank, step and buffer.
Status check(const Setting& setting, std::span<const Schedule> schedules);

/// A table that a person can read; one line per step.
std::string print(const Schedule& schedule);

/// What a machine does per second.
struct Rates {
  double forward_flops = 600e12;
  double backward_flops = 550e12;
  double memory_bytes = 4.0e12;  // copies, fills, accumulation: bytes read plus written
  double node_bytes = 330e9;     // between ranks of a node, one direction
  double network_bytes = 50e9;   // between nodes, per rank
  double node_latency = 11e-6;   // per message
  double network_latency = 20e-6;
  double launch_seconds = 5e-6;  // per compute step
};

/// From JSON with these field names; absent ones keep the default, unknown ones are an error.
Result<Rates> rates_from_json(std::string_view json);

struct Span {
  StepId step = 0;
  double begin = 0;
  double end = 0;
};

struct Cost {
  double seconds = 0;           // when the rank's last step is done
  double compute_seconds = 0;   // busy time of the compute lane
  double transfer_seconds = 0;  // sum over transfers
  int64_t bytes_sent = 0;
  int64_t peak_bytes = 0;  // workspace, scratch, and saved buffers that are no alias
  double flops = 0;
  std::vector<Span> spans;  // per step
};

/// Time, bytes and memory per rank, all ranks together: a transfer begins when both sides posted
/// it, each rank sends one message at a time and receives one at a time.
std::vector<Cost> cost(std::span<const Schedule> schedules, const Topology& topology,
                       const Rates& rates);
/// One rank alone, its peers assumed to be as far as it is itself: linear in the steps, for
/// simulations of thousands of ranks.
Cost cost(const Schedule& schedule, const Topology& topology, const Rates& rates);

/// Each rank's lanes over time, as an SVG document.
std::string plot(std::span<const Schedule> schedules, std::span<const Cost> costs);

}  // namespace longspan
