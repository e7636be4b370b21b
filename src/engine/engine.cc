#include "longspan/engine.h"

#include <fmt/format.h>

#include <chrono>
#include <list>
#include <optional>
#include <span>
#include <utility>

#include "engine/agreement.h"
#include "engine/build.h"
#include "engine/call.h"
#include "engine/choose.h"
#include "engine/events.h"
#include "engine/executor.h"
#include "engine/operands.h"
#include "engine/options.h"
#include "guard/guard.h"
#include "plan/cache.h"

namespace longspan {
namespace {

/// Calls kept for problems that come back.
constexpr size_t kMostCalls = 64;

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "engine"};
}

/// What one execution works on.
struct Task {
  OperandViews views;
  Sides sides;
  const Saved& saved;
  Workspace workspace;
  double scale;
  Stream stream;
};

/// A problem of before, and what became of it.
struct Known {
  Problem problem;
  std::optional<std::string> plan;
  std::shared_ptr<const PreparedCall> call;
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(Options options, std::shared_ptr<Communicator> communicator, Device device,
             std::unique_ptr<Queues> queues, std::shared_ptr<guard::Report> report)
      : options_(std::move(options)),
        communicator_(std::move(communicator)),
        device_(std::move(device)),
        queues_(std::move(queues)),
        report_(std::move(report)),
        executor_(*communicator_, *queues_),
        events_(options_, communicator_->rank()) {}

  Result<std::shared_ptr<const Call>> prepare(const Problem& problem) override {
    return ready({problem, std::nullopt});
  }
  Result<std::shared_ptr<const Call>> load(std::string_view plan) override {
    return ready({Problem(), plan});
  }
  Status forward(const Call& call, const ForwardOperands& x, const Saved& saved,
                 Workspace workspace, Stream&) override;
  Status backward(const Call& call, const BackwardOperands& x, const Saved& saved,
                  Workspace workspace, Stream&) override;

  Status synchronize(Stream& stream) override;

  Counters counters() const override {
    Counters result = counters_;
    result.attend_launches = executor_.attend_launches();
    result.fill_steps += executor_.fill_steps();
    return result;
  }
  CacheStatistics cache_statistics() const override { return options_.plans->statistics(); }

 private:
  Result<std::shared_ptr<const Call>> ready(const Asked& asked);
  Result<std::shared_ptr<const PreparedCall>> build(const Wanted& wanted);
  /// Collective: the own failure, else that of another rank or what the ranks disagree on.
  Status agree(std::span<const Fact> facts, const Status& mine);
  /// No further call can match the others'.
  void give_up(const Error& reason);
  Status check_group(const PreparedCall& call) const;
  /// Only what has run before may be captured.
  Status check_warm(const PreparedCall& call, Direction direction, Stream stream) const;
  /// One execution: checks, then guarded_run().
  template <class Operands>
  Status play(const Call& call, Direction direction, const Operands& x, const Saved& saved,
              Workspace workspace, Stream stream);
  template <class Operands>
  Status guarded_run(const PreparedCall& call, Direction direction, const Operands& x,
                     const Saved& saved, Workspace workspace, Stream stream);
  Status run(const PreparedCall& call, Direction direction, const Task& task);
  /// What a guard found, once.
  Status reported();

  Options options_;
  std::shared_ptr<Communicator> communicator_;
  Device device_;
  std::unique_ptr<Queues> queues_;
  std::shared_ptr<guard::Report> report_;
  Executor executor_;
  std::list<Known> calls_;  // most recent first
  Counters counters_;
  Status broken_;  // why this rank gave up
  Events events_;
};

Result<std::shared_ptr<const PreparedCall>> EngineImpl::build(const Wanted& wanted) {
  const auto began = std::chrono::steady_clock::now();
  const Topology& topology = communicator_->topology();
  Choice choice;
  if (wanted.record) {
    LONGSPAN_TRY(choice, settle(*wanted.record, topology, device_));
    LONGSPAN_CHECK_OK(check_loans(*wanted.record, *communicator_));
  } else {
    ++counters_.selections;
    LONGSPAN_TRY(choice, choose(wanted.problem, topology, device_, wanted.options, *options_.plans,
                                communicator_->lends()));
  }
  if (!choice.explanation.ok()) {
    return Error{ErrorCode::kUnsupported, choice.explanation.text(), "selection"};
  }
  events_.chosen(choice.explanation);
  LONGSPAN_TRY(auto call,
               build_call(wanted, std::move(choice), device_, communicator_->rank(), report_));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  events_.prepared(*call, took.count());
  return call;
}

void EngineImpl::give_up(const Error& reason) {
  communicator_->abandon(reason);
  broken_ = reason;
  events_.lost(reason);
}

Status EngineImpl::agree(std::span<const Fact> facts, const Status& mine) {
  const auto all = exchange_facts(*communicator_, facts, !mine.ok(), options_.deadline);
  if (!all.ok()) give_up(all.error());
  LONGSPAN_CHECK_OK(mine);
  if (!all.ok()) return all.error();
  return compare_facts(facts, *all);
}

Result<std::shared_ptr<const Call>> EngineImpl::ready(const Asked& asked) {
  LONGSPAN_CHECK_OK(broken_);
  for (auto known = calls_.begin(); known != calls_.end(); ++known) {
    if (known->plan == asked.plan && known->problem == asked.problem) {
      calls_.splice(calls_.begin(), calls_, known);
      return std::shared_ptr<const Call>(known->call);
    }
  }
  const auto checked = wanted(asked, options_, device_);
  const auto all = facts(checked.ok() ? checked->problem : asked.problem,
                         checked.ok() ? checked->options : options_, communicator_->topology(),
                         asked.plan.value_or(""));
  LONGSPAN_CHECK_OK(agree(all, checked.ok() ? Status() : Status(checked.error())));
  const auto built = build(*checked);
  Fact schedule{"schedule", 0};
  if (built.ok()) {
    schedule.hash = (*built)->prepared(Direction::kForward).common_hash * 31 +
                    (*built)->prepared(Direction::kBackward).common_hash;
  }
  LONGSPAN_CHECK_OK(agree({&schedule, 1}, built.ok() ? Status() : Status(built.error())));
  calls_.push_front({asked.problem, std::optional<std::string>(asked.plan), *built});
  if (calls_.size() > kMostCalls) {
    calls_.pop_back();
    events_.forgot_call(kMostCalls);
  }
  return std::shared_ptr<const Call>(*built);
}

Status EngineImpl::check_group(const PreparedCall& call) const {
  if (call.rank() != communicator_->rank()) {
    return invalid(fmt::format("the call was prepared by rank {}; this engine is rank {}",
                               call.rank(), communicator_->rank()));
  }
  if (call.partition().ranks() == communicator_->size()) return {};
  return invalid(fmt::format("the call was prepared for {} ranks; this engine has {}",
                             call.partition().ranks(), communicator_->size()));
}

Status EngineImpl::check_warm(const PreparedCall& call, Direction direction, Stream stream) const {
  if (call.has_run(direction)) return {};
  LONGSPAN_TRY(const bool capturing, queues_->capturing(stream));
  if (!capturing) return {};
  return invalid(
      fmt::format("a cold call is being captured: run {} of this call once before, so that "
                  "kernels are loaded and graphs of cuDNN built",
                  name(direction)));
}

Status EngineImpl::run(const PreparedCall& call, Direction direction, const Task& task) {
  const Prepared& prepared = call.prepared(direction);
  if (prepared.fills) {
    LONGSPAN_CHECK_OK(prepared.fills->run(task.views, task.sides, task.stream));
    counters_.fill_steps += prepared.fills->count();
  }
  LONGSPAN_CHECK_OK(executor_.run({.schedule = prepared.schedule,
                                   .plan = prepared.plan.get(),
                                   .operands = task.views,
                                   .saved = task.saved,
                                   .workspace = task.workspace,
                                   .scale = task.scale,
                                   .sides = task.sides,
                                   .rows = *prepared.rows,
                                   .staged = prepared.staged,
                                   .awaited = prepared.awaited,
                                   .pulling = prepared.pulling,
                                   .cold = !call.has_run(direction),
                                   .stream = task.stream,
                                   .deadline = options_.deadline}));
  const bool forward = direction == Direction::kForward;
  (forward ? counters_.bytes_sent_forward : counters_.bytes_sent_backward) =
      prepared.schedule.bytes_sent();
  return {};
}

template <class Operands>
Status EngineImpl::play(const Call& call, Direction direction, const Operands& x,
                        const Saved& saved, Workspace workspace, Stream stream) {
  LONGSPAN_CHECK_OK(broken_);
  LONGSPAN_CHECK_OK(check_binding(call, x, saved, workspace));
  const auto& prepared = static_cast<const PreparedCall&>(call);
  LONGSPAN_CHECK_OK(check_group(prepared));
  LONGSPAN_CHECK_OK(check_warm(prepared, direction, stream));
  const Status earlier = reported();
  const Status status = guarded_run(prepared, direction, x, saved, workspace, stream);
  if (!status.ok()) give_up(status.error());
  LONGSPAN_CHECK_OK(status);
  prepared.note_run(direction);
  LONGSPAN_CHECK_OK(earlier);
  return device_.is_cuda() ? Status() : reported();
}

template <class Operands>
Status EngineImpl::guarded_run(const PreparedCall& call, Direction direction, const Operands& x,
                               const Saved& saved, Workspace workspace, Stream stream) {
  const Task task{.views = views_of(x),
                  .sides = sides_of(call, x),
                  .saved = saved,
                  .workspace = workspace,
                  .scale = x.scale,
                  .stream = stream};
  const guard::Guard* const guard = call.guard();
  if (guard == nullptr) return run(call, direction, task);
  void* const scratch = call.guard_scratch(direction, workspace);
  LONGSPAN_CHECK_OK(guard->check(guard::arrays_of(x.side.lengths), scratch, stream));
  LONGSPAN_CHECK_OK(run(call, direction, task));
  return guard->poison(outputs_of(x), scratch, stream);
}

Status EngineImpl::forward(const Call& call, const ForwardOperands& x, const Saved& saved,
                           Workspace workspace, Stream& stream) {
  return play(call, Direction::kForward, x, saved, workspace, stream);
}

Status EngineImpl::backward(const Call& call, const BackwardOperands& x, const Saved& saved,
                            Workspace workspace, Stream& stream) {
  return play(call, Direction::kBackward, x, saved, workspace, stream);
}

Status EngineImpl::reported() {
  const std::optional<guard::Violation> violation = report_->take();
  if (!violation) return {};
  events_.guard_failed(guard::error_of(*violation));
  return guard::error_of(*violation);
}

Status EngineImpl::synchronize(Stream& stream) {
  LONGSPAN_CHECK_OK(broken_);
  LONGSPAN_CHECK_OK(longspan::synchronize(device_, stream));
  const Status health = communicator_->health();
  if (!health.ok()) events_.lost(health.error());
  LONGSPAN_CHECK_OK(health);
  return reported();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Options options,
                                               std::shared_ptr<Communicator> communicator,
                                               Device device) {
  LONGSPAN_CHECK_OK(check_options(options, communicator.get(), device));
  if (!options.plans) options.plans = make_plan_cache();
  LONGSPAN_TRY(std::unique_ptr<Queues> queues, make_queues(device, communicator->has_own_device()));
  LONGSPAN_TRY(std::shared_ptr<guard::Report> report, guard::make_report(device));
  return std::unique_ptr<Engine>(new EngineImpl(std::move(options), std::move(communicator),
                                                std::move(device), std::move(queues),
                                                std::move(report)));
}

}  // namespace longspan
