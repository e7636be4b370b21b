#include "engine/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace longspan {
namespace {

constexpr std::string_view kReason = "recorded";

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "plan"};
}

/// What providers may make plans depend on, beside the number of threads, which changes no bit.
std::string fingerprint(const Device& device) {
  if (!device.is_cuda()) return "cpu";
  return fmt::format("cuda {}.{} {}", device.capability / 10, device.capability % 10,
                     device.product);
}

const Provider* provider_named(std::string_view name) {
  for (const Provider* provider : providers()) {
    if (provider->name() == name) return provider;
  }
  return nullptr;
}

Result<RecordedDirection> record_direction(const PlanParts& parts, Direction direction) {
  const bool forward = direction == Direction::kForward;
  const Selection& selection = forward ? parts.explanation.forward : parts.explanation.backward;
  RecordedDirection recorded;
  recorded.strategy = selection.strategy->name;
  recorded.routing = text((forward ? parts.options.forward : parts.options.backward).routing);
  recorded.provider = selection.provider->name();
  LONGSPAN_TRY(recorded.identity,
               selection.provider->identity(parts.problem, direction, parts.device));
  recorded.schedule_hash = forward ? parts.forward_hash : parts.backward_hash;
  return recorded;
}

/// Whether bytes can say what the problem is.
Status check_writable(const Problem& problem) {
  const auto refused = [](std::string message) {
    return Error{ErrorCode::kUnsupported, std::move(message), "plan"};
  };
  if (problem.modification) {
    return refused(
        fmt::format("the score modification \"{}\" is a callback, which bytes cannot "
                    "hold: prepare the problem where it runs",
                    problem.modification.functions->key));
  }
  const auto again = parse_problem(problem.text());
  if (again.ok() && *again == problem) return {};
  return refused(
      fmt::format("the text \"{}\" is another problem than the one prepared: bytes hold "
                  "what parse_problem can make",
                  problem.text()));
}

/// An option that is at its default, or as the plan has it.
template <class T>
Status check_option(std::string_view name, const T& mine, const T& standard, const T& recorded) {
  if (mine == standard || mine == recorded) return {};
  return invalid(
      fmt::format("{} is {} here and {} in the plan; leave it at {} to load this plan, "
                  "or prepare the problem anew",
                  name, mine, recorded, standard));
}

Status check_direction(std::string_view name, const DirectionOptions& mine,
                       const std::string& strategy, const std::string& routing) {
  const std::string automatic = "auto";
  LONGSPAN_CHECK_OK(
      check_option(fmt::format("{} strategy", name), mine.strategy, automatic, strategy));
  return check_option(fmt::format("{} provider", name), text(mine.routing), automatic, routing);
}

std::string list(const std::vector<Promise>& promises) {
  std::vector<std::string_view> names;
  for (const Promise promise : promises) names.push_back(name(promise));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

Result<Selection> settle_direction(const RecordedDirection& recorded, const Setting& setting,
                                   Direction direction, const Device& device) {
  Selection selection;
  LONGSPAN_TRY(selection.strategy, find_strategy(recorded.strategy));
  const Verdict verdict = selection.strategy->consider(setting, direction);
  if (const Decline* const decline = declined(verdict)) {
    return Error{ErrorCode::kUnsupported, decline->detail, recorded.strategy};
  }
  selection.provider = provider_named(recorded.provider);
  if (selection.provider == nullptr) {
    return invalid(fmt::format("provider {} is not in this library", recorded.provider));
  }
  LONGSPAN_TRY(const std::string identity,
               selection.provider->identity(setting.problem, direction, device));
  if (identity != recorded.identity) {
    return invalid(
        fmt::format("provider {} was \"{}\" when the plan was recorded and is \"{}\" "
                    "here; record the plan again",
                    recorded.provider, recorded.identity, identity));
  }
  selection.strategy_reason = selection.provider_reason = kReason;
  return selection;
}

Status check_place(const PlanRecord& record, const Topology& topology, const Device& device) {
  if (record.device != fingerprint(device)) {
    return invalid(
        fmt::format("the plan was recorded for device \"{}\"; this is \"{}\": record it "
                    "here",
                    record.device, fingerprint(device)));
  }
  if (static_cast<int>(record.node_of_rank.size()) != topology.ranks()) {
    return invalid(
        fmt::format("the plan is of {} ranks; there are {} here: start as many, or "
                    "record it here",
                    record.node_of_rank.size(), topology.ranks()));
  }
  if (record.node_of_rank == topology.node_of_rank) return {};
  return invalid(
      fmt::format("the plan's ranks lie on nodes {}; here they lie on {}: record it here",
                  fmt::join(record.node_of_rank, ","), fmt::join(topology.node_of_rank, ",")));
}

}  // namespace

Result<PlanRecord> make_record(const PlanParts& parts) {
  LONGSPAN_CHECK_OK(check_writable(parts.problem));
  PlanRecord record{.problem = parts.problem.text(),
                    .node_of_rank = parts.topology.node_of_rank,
                    .device = fingerprint(parts.device),
                    .partition = parts.explanation.partition,
                    .head_slices = parts.explanation.head_slices,
                    .require_fp32_partials = parts.options.require_fp32_partials,
                    .pulls = parts.pulls,
                    .gathers_whole = parts.gathers_whole,
                    .promises = parts.options.promises,
                    .guards = parts.options.guards,
                    .forward = {},
                    .backward = {}};
  LONGSPAN_TRY(record.forward, record_direction(parts, Direction::kForward));
  if (parts.explanation.forward_only) return record;
  LONGSPAN_TRY(record.backward, record_direction(parts, Direction::kBackward));
  return record;
}

Result<Options> options_with(const PlanRecord& record, Options mine) {
  const Options standard;
  const RecordedDirection none{.strategy = std::string(kNoStrategy), .routing = "auto"};
  const RecordedDirection& backward = record.backward ? *record.backward : none;
  LONGSPAN_CHECK_OK(check_direction(name(Direction::kForward), mine.forward,
                                    record.forward.strategy, record.forward.routing));
  LONGSPAN_CHECK_OK(check_direction(name(Direction::kBackward), mine.backward, backward.strategy,
                                    backward.routing));
  LONGSPAN_CHECK_OK(check_option("partition", mine.partition, standard.partition,
                                 std::string(name(record.partition))));
  LONGSPAN_CHECK_OK(
      check_option("head_slices", mine.head_slices, standard.head_slices, record.head_slices));
  LONGSPAN_CHECK_OK(check_option("require_fp32_partials", mine.require_fp32_partials,
                                 standard.require_fp32_partials, record.require_fp32_partials));
  LONGSPAN_CHECK_OK(check_option("promises", list(mine.promises), list(standard.promises),
                                 list(record.promises)));
  if (!mine.pull && record.pulls) {
    return invalid(
        "pull is false here and the plan pulls; leave it at true to load this plan, or "
        "prepare the problem anew");
  }
  LONGSPAN_CHECK_OK(
      check_option("guards", name(mine.guards), name(standard.guards), name(record.guards)));
  mine.forward.strategy = record.forward.strategy;
  LONGSPAN_TRY(mine.forward.routing, parse_routing(record.forward.routing));
  mine.backward.strategy = backward.strategy;
  LONGSPAN_TRY(mine.backward.routing, parse_routing(backward.routing));
  mine.partition = name(record.partition);
  mine.head_slices = record.head_slices;
  mine.require_fp32_partials = record.require_fp32_partials;
  mine.pull = record.pulls;
  mine.promises = record.promises;
  mine.guards = record.guards;
  return mine;
}

Result<Choice> settle(const PlanRecord& record, const Topology& topology, const Device& device) {
  LONGSPAN_CHECK_OK(check_place(record, topology, device));
  LONGSPAN_TRY(const Options options, options_with(record, {}));
  LONGSPAN_TRY(const Problem problem, parse_problem(record.problem));
  Choice choice;
  LONGSPAN_TRY(choice.setting, make_setting(problem, topology, device, options));
  choice.setting.forward = options.forward.strategy;
  choice.setting.backward = options.backward.strategy;
  choice.setting.pulls = record.pulls;
  choice.setting.gathers_whole = record.gathers_whole;
  Explanation& explanation = choice.explanation;
  explanation.partition = record.partition;
  explanation.partition_reason = kReason;
  explanation.head_slices = record.head_slices;
  explanation.forward_only = !record.backward;
  LONGSPAN_TRY(explanation.forward,
               settle_direction(record.forward, choice.setting, Direction::kForward, device));
  if (!record.backward) return choice;
  LONGSPAN_TRY(explanation.backward,
               settle_direction(*record.backward, choice.setting, Direction::kBackward, device));
  return choice;
}

Status check_loans(const PlanRecord& record, const Communicator& communicator) {
  if (!record.pulls || communicator.lends()) return {};
  return invalid(
      fmt::format("the plan pulls keys from memory of peers, and communicator {} lends none: use "
                  "peer, or record it here",
                  communicator.name()));
}

Status check_hash(const PlanRecord& record, Direction direction, uint64_t hash) {
  const bool forward = direction == Direction::kForward;
  if (!forward && !record.backward) return {};
  const uint64_t recorded = forward ? record.forward.schedule_hash : record.backward->schedule_hash;
  if (hash == recorded) return {};
  return invalid(
      fmt::format("the plan's {} schedule has hash {:016x}; this library builds {:016x} "
                  "from the same declaration: record the plan again",
                  name(direction), recorded, hash));
}

}  // namespace longspan
