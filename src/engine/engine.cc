#include "longspan/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <span>
#include <utility>

#include "engine/agreement.h"
#include "engine/call.h"
#include "engine/choose.h"
#include "engine/executor.h"
#include "plan/cache.h"

namespace longspan {
namespace {

/// Beyond this many ranks every rank proves only that its own schedule equals what the others
/// derive: building all of them on every rank would grow with the square.
constexpr int kMostCheckedRanks = 16;

/// Calls kept for problems that come back.
constexpr size_t kMostCalls = 64;

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "engine"};
}

size_t aligned(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

/// A problem as it was asked for, and what became of it.
struct Known {
  Problem asked;
  std::shared_ptr<const PreparedCall> call;
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(Options options, std::shared_ptr<Communicator> communicator, Device device,
             std::unique_ptr<Queues> queues)
      : options_(std::move(options)),
        communicator_(std::move(communicator)),
        device_(std::move(device)),
        queues_(std::move(queues)),
        executor_(*communicator_, *queues_) {}

  Result<std::shared_ptr<const Call>> prepare(const Problem& problem) override;
  Status forward(const Call& call, const ForwardOperands& x, const Saved& saved,
                 Workspace workspace, Stream&) override;
  Status backward(const Call& call, const BackwardOperands& x, const Saved& saved,
                  Workspace workspace, Stream&) override;

  Counters counters() const override {
    Counters result = counters_;
    result.attend_launches = executor_.attend_launches();
    return result;
  }
  CacheStatistics cache_statistics() const override { return options_.plans->statistics(); }

 private:
  Result<std::shared_ptr<const PreparedCall>> build(const Problem& problem) const;
  Result<Prepared> prepare_direction(const Setting& setting, Direction direction,
                                     const Selection& selection) const;
  /// Collective: the own failure, else that of another rank or what the ranks disagree on.
  Status agree(std::span<const Fact> facts, const Status& mine);
  /// No further call can match the others'.
  void give_up(const Error& reason);
  Status run(const Call& call, Direction direction, const OperandViews& views, const Sides& sides,
             const Saved& saved, Workspace workspace, double scale, Stream stream);

  Options options_;
  std::shared_ptr<Communicator> communicator_;
  Device device_;
  std::unique_ptr<Queues> queues_;
  Executor executor_;
  std::list<Known> calls_;  // most recent first
  Counters counters_;
  Status broken_;  // why this rank gave up
};

Result<Prepared> EngineImpl::prepare_direction(const Setting& setting, Direction direction,
                                               const Selection& selection) const {
  const int ranks = setting.topology.ranks();
  const int rank = communicator_->rank();
  Prepared prepared;
  // The schedule of rank 0 stands for all: every rank derives it from the same facts.
  const auto hash = [&](const Schedule& first) {
    return hash_schedule(first) * 31 + hash_bytes(selection.provider->name());
  };
  if (options_.check_schedules && ranks <= kMostCheckedRanks) {
    std::vector<Schedule> all;
    for (int r = 0; r < ranks; ++r) {
      LONGSPAN_TRY(Schedule schedule, selection.strategy->build(setting, direction, r));
      all.push_back(std::move(schedule));
    }
    LONGSPAN_CHECK_OK(check(setting, all));
    prepared.common_hash = hash(all.front());
    prepared.schedule = std::move(all[static_cast<size_t>(rank)]);
  } else {
    LONGSPAN_TRY(const Schedule first, selection.strategy->build(setting, direction, 0));
    prepared.common_hash = hash(first);
    LONGSPAN_TRY(prepared.schedule, selection.strategy->build(setting, direction, rank));
  }
  prepared.workspace_bytes = static_cast<size_t>(prepared.schedule.workspace_bytes);
  if (prepared.schedule.tile_count() > 0) {
    LONGSPAN_TRY(prepared.plan,
                 options_.plans->plan(*selection.provider, prepared.schedule.tiles, device_));
    const size_t scratch = aligned(prepared.plan->workspace_bytes());
    prepared.schedule.scratch_bytes = static_cast<int64_t>(scratch);
    prepared.workspace_bytes += static_cast<size_t>(prepared.schedule.queues()) * scratch;
  }
  for (const Step& step : prepared.schedule.steps) {
    for (const Part& part : step.parts) {
      LONGSPAN_TRY(prepared.staged.emplace_back(), prepared.plan->stage(part.tiles));
    }
  }
  prepared.awaited = awaited_elsewhere(prepared.schedule);
  LONGSPAN_TRY(prepared.rows, make_row_program(prepared.schedule, device_));
  return prepared;
}

Result<std::shared_ptr<const PreparedCall>> EngineImpl::build(const Problem& problem) const {
  LONGSPAN_TRY(Choice choice,
               choose(problem, communicator_->topology(), device_, options_, *options_.plans));
  if (!choice.explanation.ok()) {
    return Error{ErrorCode::kUnsupported, choice.explanation.text(), "selection"};
  }
  LONGSPAN_TRY(Prepared forward,
               prepare_direction(choice.setting, Direction::kForward, choice.explanation.forward));
  std::array<Prepared, 2> directions = {std::move(forward), Prepared()};
  if (!choice.explanation.forward_only) {
    LONGSPAN_TRY(directions[1], prepare_direction(choice.setting, Direction::kBackward,
                                                  choice.explanation.backward));
  }
  LONGSPAN_TRY(Slopes slopes, make_default_slopes(choice.setting.problem, device_));
  return std::make_shared<const PreparedCall>(
      std::move(choice.setting), std::move(choice.explanation), std::move(directions),
      communicator_->rank(), !device_.is_cuda(), std::move(slopes));
}

void EngineImpl::give_up(const Error& reason) {
  communicator_->abandon(reason);
  broken_ = reason;
}

Status EngineImpl::agree(std::span<const Fact> facts, const Status& mine) {
  const auto all = exchange_facts(*communicator_, facts, !mine.ok(), options_.deadline);
  if (!all.ok()) give_up(all.error());
  LONGSPAN_CHECK_OK(mine);
  if (!all.ok()) return all.error();
  return compare_facts(facts, *all);
}

Result<std::shared_ptr<const Call>> EngineImpl::prepare(const Problem& problem) {
  LONGSPAN_CHECK_OK(broken_);
  for (auto known = calls_.begin(); known != calls_.end(); ++known) {
    if (known->asked == problem) {
      calls_.splice(calls_.begin(), calls_, known);
      return std::shared_ptr<const Call>(known->call);
    }
  }
  const auto checked = validated(problem);
  LONGSPAN_CHECK_OK(agree(facts(problem, options_, communicator_->topology()),
                          checked.ok() ? Status() : Status(checked.error())));
  const auto built = build(*checked);
  Fact schedule{"schedule", 0};
  if (built.ok()) {
    schedule.hash = (*built)->prepared(Direction::kForward).common_hash * 31 +
                    (*built)->prepared(Direction::kBackward).common_hash;
  }
  LONGSPAN_CHECK_OK(agree({&schedule, 1}, built.ok() ? Status() : Status(built.error())));
  calls_.push_front({problem, *built});
  if (calls_.size() > kMostCalls) calls_.pop_back();
  return std::shared_ptr<const Call>(*built);
}

Status EngineImpl::run(const Call& call, Direction direction, const OperandViews& views,
                       const Sides& sides, const Saved& saved, Workspace workspace, double scale,
                       Stream stream) {
  const auto& prepared_call = static_cast<const PreparedCall&>(call);
  if (prepared_call.rank() != communicator_->rank()) {
    return invalid(fmt::format("the call was prepared by rank {}; this engine is rank {}",
                               prepared_call.rank(), communicator_->rank()));
  }
  if (call.partition().ranks() != communicator_->size()) {
    return invalid(fmt::format("the call was prepared for {} ranks; this engine has {}",
                               call.partition().ranks(), communicator_->size()));
  }
  const Prepared& prepared = prepared_call.prepared(direction);
  const Status status = executor_.run({.schedule = prepared.schedule,
                                       .plan = prepared.plan.get(),
                                       .operands = views,
                                       .saved = saved,
                                       .workspace = workspace,
                                       .scale = scale,
                                       .sides = sides,
                                       .rows = *prepared.rows,
                                       .staged = prepared.staged,
                                       .awaited = prepared.awaited,
                                       .stream = stream,
                                       .deadline = options_.deadline});
  if (!status.ok()) {
    give_up(status.error());
    return status;
  }
  const int64_t sent = prepared.schedule.bytes_sent();
  (direction == Direction::kForward ? counters_.bytes_sent_forward
                                    : counters_.bytes_sent_backward) = sent;
  return {};
}

/// The tensors that both directions have.
template <class Operands>
OperandViews common_views(const Operands& x) {
  OperandViews views;
  at(views, Quantity::kQ) = x.q;
  at(views, Quantity::kK) = x.k;
  at(views, Quantity::kV) = x.v;
  at(views, Quantity::kO) = x.o;
  at(views, Quantity::kLse) = x.lse;
  return views;
}

/// Side operands with the problem's values where the caller gives none.
Sides resolved(const PreparedCall& call, const SideOperands& side) {
  const Problem& problem = call.problem();
  Sides sides;
  sides.sink = side.sink;
  sides.terms.softcap = side.softcap.value_or(problem.softcap);
  sides.terms.slopes = side.slopes.data != nullptr ? side.slopes : call.default_slopes();
  sides.terms.bias = side.bias;
  sides.terms.modification = problem.modification.functions.get();
  sides.terms.dropout = side.dropout.value_or(problem.dropout_values());
  return sides;
}

Status EngineImpl::forward(const Call& call, const ForwardOperands& x, const Saved& saved,
                           Workspace workspace, Stream& stream) {
  LONGSPAN_CHECK_OK(broken_);
  LONGSPAN_CHECK_OK(check_binding(call, x, saved, workspace));
  OperandViews views = common_views(x);
  at(views, Quantity::kMaxLogit) = x.max_logit;
  const Sides sides = resolved(static_cast<const PreparedCall&>(call), x.side);
  return run(call, Direction::kForward, views, sides, saved, workspace, x.scale, stream);
}

Status EngineImpl::backward(const Call& call, const BackwardOperands& x, const Saved& saved,
                            Workspace workspace, Stream& stream) {
  LONGSPAN_CHECK_OK(broken_);
  LONGSPAN_CHECK_OK(check_binding(call, x, saved, workspace));
  OperandViews views = common_views(x);
  at(views, Quantity::kDout) = x.dout;
  at(views, Quantity::kDq) = x.dq;
  at(views, Quantity::kDk) = x.dk;
  at(views, Quantity::kDv) = x.dv;
  Sides sides = resolved(static_cast<const PreparedCall&>(call), x.side);
  sides.dsink = x.dsink;
  sides.dbias = x.dbias;
  return run(call, Direction::kBackward, views, sides, saved, workspace, x.scale, stream);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Options options,
                                               std::shared_ptr<Communicator> communicator,
                                               Device device) {
  if (!communicator) return invalid("communicator is null; make one (communicator.h)");
  if (!device.is_cuda() && !device.workers) {
    return invalid("device has no worker threads; use cpu_device()");
  }
  if (communicator->size() > 1 && communicator->on_device() != device.is_cuda()) {
    return invalid(fmt::format("communicator {} moves {} memory and the device is {}; use {}",
                               communicator->name(), communicator->on_device() ? "device" : "host",
                               device.name,
                               device.is_cuda() ? "peer or nccl" : "threads, mpi or callback"));
  }
  if (options.deadline.count() <= 0) {
    return invalid(fmt::format("deadline {} ms: must be positive", options.deadline.count()));
  }
  if (options.head_slices < 1 || options.head_slices > kMostHeadSlices) {
    return invalid(
        fmt::format("head_slices {}: from 1 to {}", options.head_slices, kMostHeadSlices));
  }
  for (const std::string* strategy : {&options.forward.strategy, &options.backward.strategy}) {
    if (*strategy == "auto") continue;
    if (strategy == &options.backward.strategy && *strategy == kNoStrategy) continue;
    LONGSPAN_TRY([[maybe_unused]] const Strategy* const found, find_strategy(*strategy));
  }
  if (options.partition != "auto") {
    LONGSPAN_TRY([[maybe_unused]] const PartitionKind kind, parse_partition(options.partition));
  }
  if (!options.plans) options.plans = make_plan_cache();
  LONGSPAN_TRY(std::unique_ptr<Queues> queues, make_queues(device, communicator->has_own_device()));
  return std::unique_ptr<Engine>(new EngineImpl(std::move(options), std::move(communicator),
                                                std::move(device), std::move(queues)));
}

}  // namespace longspan
