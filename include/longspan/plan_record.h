// A prepared plan as plain values and bytes: another process, front end or language runs the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/communicator.h"
#include "longspan/device.h"
#include "longspan/engine.h"
#include "longspan/partition.h"
#include "longspan/problem.h"
#include "longspan/promise.h"
#include "longspan/schedule.h"
#include "longspan/status.h"

namespace longspan {

/// What was chosen for one direction.
struct RecordedDirection {
  std::string strategy;
  std::string routing;  // what was asked of providers, as parse_routing reads it
  std::string provider;
  std::string identity;        // Provider::identity
  uint64_t schedule_hash = 0;  // of rank 0
  bool operator==(const RecordedDirection&) const = default;
};

/// Most bytes that a plan may have.
inline constexpr size_t kMostPlanBytes = size_t{1} << 24;

/// A declaration: it names no tensor and no rank, so all ranks have the same one. What follows from
/// it (schedules, memory) is derived again where it is loaded and compared by hash.
struct PlanRecord {
  std::string problem;  // canonical text
  std::vector<int> node_of_rank;
  std::string device;  // "cpu", or "cuda 9.0 NVIDIA H200"
  PartitionKind partition = PartitionKind::kContiguous;
  int head_slices = 1;
  bool require_fp32_partials = false;
  bool pulls = false;          // forward's launch brings keys and values itself (Setting::pulls)
  bool gathers_whole = false;  // backward's keys lie in one buffer (Setting::gathers_whole)
  std::vector<Promise> promises;
  GuardPolicy guards = GuardPolicy::kReport;
  RecordedDirection forward;
  std::optional<RecordedDirection> backward;  // absent: forward alone
  bool operator==(const PlanRecord&) const = default;

  /// JSON in UTF-8 (docs/reference/files_and_json.md). Equal plans have equal bytes.
  std::string to_bytes() const;
  /// invalid_argument when the bytes are not those of to_bytes() of this version of the library:
  /// cut, changed, too long, of another format, or of what the library has not.
  static Result<PlanRecord> from_bytes(std::string_view bytes);
};

/// FNV-1a of all that ranks must agree on: equal on every machine.
uint64_t hash_schedule(const Schedule& schedule);

/// What a plan is recorded from: where it was prepared, and what was chosen.
struct PlanParts {
  const Problem& problem;
  const Topology& topology;
  const Device& device;
  const Options& options;
  const Explanation& explanation;
  bool pulls = false;
  bool gathers_whole = false;
  uint64_t forward_hash = 0;   // hash_schedule of rank 0
  uint64_t backward_hash = 0;  // unused where explanation.forward_only
};

/// unsupported where bytes cannot say what runs: providers without an identity, callbacks, problems
/// that the problem text cannot write.
Result<PlanRecord> make_record(const PlanParts& parts);

/// The partition, strategies and providers of a problem, and what its schedules are built from.
struct Choice {
  Explanation explanation;
  Setting setting;  // strategies named only where explanation.ok()
};

/// The recorded choice. Searches nothing and asks no other provider. invalid_argument names what
/// differs here from where the plan was recorded: device, ranks and nodes, identity of a provider.
Result<Choice> settle(const PlanRecord& record, const Topology& topology, const Device& device);

/// Whether a communicator lends where the plan pulls; else invalid_argument.
Status check_loans(const PlanRecord& record, const Communicator& communicator);

/// Whether a direction's schedule of rank 0, of this hash, is the recorded one; else
/// invalid_argument.
Status check_hash(const PlanRecord& record, Direction direction, uint64_t hash);

}  // namespace longspan
