// The engine: chooses strategy and provider, agrees with the other ranks, runs the schedule.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/communicator.h"
#include "longspan/decline.h"
#include "longspan/log.h"
#include "longspan/partition.h"
#include "longspan/problem.h"
#include "longspan/promise.h"
#include "longspan/provider.h"
#include "longspan/schedule.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

enum class RoutingMode { kAuto, kPrefer, kRequire, kOff };

/// Which provider may compute a direction. prefer takes the named one when it offers, else the
/// automatic choice with a recorded reason; require never falls back; off bars the named one.
struct Routing {
  RoutingMode mode = RoutingMode::kAuto;
  std::string provider;
  bool operator==(const Routing&) const = default;
};

/// "auto", "prefer:NAME", "require:NAME", "off:NAME". Unknown modes and names are invalid_argument.
Result<Routing> parse_routing(std::string_view text);
/// The reverse.
std::string text(const Routing& routing);

struct DirectionOptions {
  std::string strategy = "auto";  // backward also "none": forward alone is prepared
  Routing routing;
  bool operator==(const DirectionOptions&) const = default;
};

class PlanCache;
struct PlanRecord;    // plan_record.h
struct RoutingTable;  // routing_table.h

/// Counters of a plan cache since its creation.
struct CacheStatistics {
  int64_t hits = 0;
  int64_t builds = 0;    // plans prepared
  int64_t declines = 0;  // negative answers kept
  int64_t evictions = 0;
  int64_t size = 0;
};

/// At most `capacity` plans, least recently used ones leave first; plans in use live on.
std::shared_ptr<PlanCache> make_plan_cache(size_t capacity = 256);
CacheStatistics statistics(const PlanCache& cache);

inline constexpr int kMostHeadSlices = 64;

/// Whether outputs are filled (0, LSE -inf) before a call computes. Results are the same bits.
enum class OutputFill {
  kElide,   // rows that no tile writes alone: schedules are proved to write the others
  kAlways,  // all rows of O and LSE, of dQ, dK and dV
};
std::string_view name(OutputFill fill);                       // "elide", "always"
Result<OutputFill> parse_output_fill(std::string_view text);  // others are invalid_argument

struct Options {
  DirectionOptions forward;
  DirectionOptions backward;
  std::string partition = "auto";
  /// In how many slices heads are exchanged where they divide, so that one moves while another is
  /// computed. At most kMostHeadSlices; 0: automatic, by modelled time on GPUs, 1 elsewhere.
  int head_slices = 0;
  /// Most bytes of P and dS that a rank's backward keeps at a time where its provider puts them
  /// into the workspace (hopper; whatever it is, a unit of 128 KiB); 0: the provider's own. Fewer
  /// make more launches.
  int64_t score_bytes = 0;
  bool require_fp32_partials = false;
  /// Forward's all_gather pulls keys and values inside the launch that computes, where communicator
  /// and provider can; else they are exchanged before.
  bool pull = true;
  OutputFill output_fill = OutputFill::kElide;
  std::vector<Promise> promises;  // beyond those that problems make
  GuardPolicy guards = GuardPolicy::kReport;
  std::chrono::milliseconds deadline{60000};  // of each wait for a peer
  Rates rates;                                // drive the automatic choice of strategies
  std::shared_ptr<PlanCache> plans;           // shared between engines of a process; null: own
  /// What the automatic choice of providers goes by; null: measured_routing_table().
  std::shared_ptr<const RoutingTable> routing_table;
  bool check_schedules = true;  // prove all ranks' schedules at each cold call
  /// Told what is chosen, built, opened and lost; nothing while all goes well in calls that ran
  /// before. Empty: silence.
  Log log;
};

/// The outcome of choosing for one direction.
struct Selection {
  const Strategy* strategy = nullptr;
  const Provider* provider = nullptr;
  std::string strategy_reason;
  std::string provider_reason;         // also why a preferred provider was not taken
  std::vector<NamedDecline> declines;  // of strategies and providers
};

struct Explanation {
  Selection forward;
  Selection backward;
  PartitionKind partition = PartitionKind::kContiguous;
  std::string partition_reason;
  int head_slices = 1;
  bool forward_only = false;  // backward is "none"
  bool ok() const {
    return forward.provider && forward.strategy &&
           (forward_only || (backward.provider && backward.strategy));
  }
  /// The declines that left a direction without strategy or provider, for an `unsupported` error.
  std::string text() const;
};

/// What would run, and why; runs nothing. invalid_argument for unknown names.
Result<Explanation> explain(const Problem& problem, const Topology& topology, const Device& device,
                            const Options& options);

/// What an engine on `device` gives strategies to build from, but for their names. Pure; the device
/// need not be there. invalid_argument for unknown names.
Result<Setting> make_setting(const Problem& problem, const Topology& topology, const Device& device,
                             const Options& options);

/// A buffer that forward keeps for backward. An alias names the input or output it is; buffers that
/// are no alias are the caller's to allocate.
struct BufferSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // [rows, heads, dim]
  std::string alias;           // "q", "k", "v", "o", "lse", or empty
};

/// Tensors and values that only some problems have; a view without data is absent. Those per head
/// cover all query heads of the problem and are whole on every rank, as is the bias.
struct SideOperands {
  TensorView sink;    // [1, 1, heads, 1], accumulator type; needed for sink=learnable
  TensorView slopes;  // likewise, for alibi; absent: the default slopes
  TensorView bias;    // [batch or 1, sq, heads or 1, skv] as Problem::bias_shape, dtype of q
  std::optional<double> softcap;   // absent: the problem's
  std::optional<Dropout> dropout;  // absent: the problem's, offset 0
  /// For device_lengths: of all sequences of the problem, the same on every rank.
  ActualLengths lengths = {};
};

/// One rank's tensors. Views follow Shard: [batch, seq] rows in local row order.
struct ForwardOperands {
  TensorView q, k, v;
  TensorView o;    // written: dtype of the problem
  TensorView lse;  // written: accumulator type, dim 1, natural log; -inf where no key is seen
  double scale = 0;
  SideOperands side;
  TensorView max_logit;  // written, as side.sink: over all ranks; -inf where no pair is visible
};

struct BackwardOperands {
  TensorView q, k, v, o, lse, dout;
  TensorView dq, dk, dv;  // written
  double scale = 0;
  SideOperands side;  // values as in forward
  /// Written, accumulator type, shapes of sink and bias: what this rank's pairs contribute. The sum
  /// over ranks is the gradient, as with every parameter that all ranks hold a copy of.
  TensorView dsink, dbias;
};

/// Memory for the saved buffers that are no alias, in the order of saved_layout.
using Saved = std::vector<void*>;

/// A problem that all ranks agreed on, with its schedules and plans. Immutable; keep it and pass it
/// again: that is the fast path. It names no tensor, so any number of calls may be in flight.
class Call {
 public:
  virtual ~Call() = default;
  virtual const Problem& problem() const = 0;
  virtual const Partition& partition() const = 0;
  virtual const Explanation& explanation() const = 0;
  virtual const Schedule& schedule(Direction direction) const = 0;
  virtual const std::vector<BufferSpec>& saved_layout() const = 0;
  virtual size_t workspace_bytes(Direction direction) const = 0;
  /// For Engine::load, here or elsewhere; the same on every rank. Errors of make_record.
  virtual Result<PlanRecord> record() const = 0;
};

/// What an engine counted.
struct Counters {
  int64_t bytes_sent_forward = 0;  // last call
  int64_t bytes_sent_backward = 0;
  int64_t attend_launches = 0;  // since creation
  /// That wrote 0 or -inf where no tile writes, or as OutputFill::kAlways asks; since creation.
  int64_t fill_steps = 0;
  int64_t selections = 0;  // times that strategies and providers were chosen; since creation
};

/// One rank. Used by one thread at a time.
class Engine {
 public:
  virtual ~Engine() = default;

  static Result<std::unique_ptr<Engine>> create(Options options,
                                                std::shared_ptr<Communicator> communicator,
                                                Device device);

  /// Collective when cold: chooses, builds, and compares problem, options and schedule with the
  /// other ranks. invalid_argument on every rank, naming the field, when they differ; unsupported
  /// with all declines when nobody offers. A problem prepared before comes from the cache.
  virtual Result<std::shared_ptr<const Call>> prepare(const Problem& problem) = 0;

  /// Collective when cold: what PlanRecord::to_bytes wrote, as it was chosen there; nothing is
  /// chosen anew. Options of this engine that are not at their defaults must be those of the plan.
  /// invalid_argument when they are not, for bytes that cannot be read, and for what differs here
  /// (settle, check_hash); the other ranks are told.
  virtual Result<std::shared_ptr<const Call>> load(std::string_view plan) = 0;

  /// Collective. Returns when every lane is done: no buffer is touched later. No allocation when
  /// the same call ran before. Alignment, sizes, overlap and workspace are checked first; nothing
  /// has moved when that check fails.
  virtual Status forward(const Call& call, const ForwardOperands& operands, const Saved& saved,
                         Workspace workspace, Stream& stream) = 0;
  virtual Status backward(const Call& call, const BackwardOperands& operands, const Saved& saved,
                          Workspace workspace, Stream& stream) = 0;

  /// Waits for the stream. guard_failed, once, when a guard found since then that a promise did not
  /// hold: the message names promise, sequence, value and limit, and the outputs of that call are
  /// NaN. forward and backward return it too, without waiting for the device: of an earlier call,
  /// while their own call was run all the same, so that ranks stay in step. The communicator's
  /// health() comes first.
  virtual Status synchronize(Stream& stream) = 0;

  virtual Counters counters() const = 0;
  virtual CacheStatistics cache_statistics() const = 0;
};

/// The operand checks of forward and backward alone.
Status check_binding(const Call& call, const ForwardOperands& operands, const Saved& saved,
                     Workspace workspace);
Status check_binding(const Call& call, const BackwardOperands& operands, const Saved& saved,
                     Workspace workspace);

}  // namespace longspan
