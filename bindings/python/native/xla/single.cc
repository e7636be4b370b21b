#include "single.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "devices.h"
#include "request.h"

namespace longspan::xla {

/// Engines of one device. A call may run on any of them, as all are rank 0 of 1.
class SingleCall::Engines {
 public:
  explicit Engines(const Device& device) : device_(device), plans_(make_plan_cache()) {}

  /// Of the device, for as long as the process lives.
  static Result<Engines*> of(int ordinal) {
    static std::mutex* const mutex = new std::mutex;
    static auto* const all = new std::map<int, Engines>;
    LONGSPAN_TRY(const Device* const device, device_of(ordinal));
    const std::lock_guard lock(*mutex);
    return &all->try_emplace(ordinal, *device).first->second;
  }

  Result<std::unique_ptr<Engine>> make(Options options) const {
    options.plans = plans_;
    return Engine::create(std::move(options),
                          make_threads_communicators(Topology::blocks(1, 1)).front(), device_);
  }

  Result<std::unique_ptr<Engine>> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Engine> engine = std::move(free_.back());
        free_.pop_back();
        return engine;
      }
    }
    return make({});
  }

  void give_back(std::unique_ptr<Engine> engine) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(engine));
  }

 private:
  const Device& device_;
  const std::shared_ptr<PlanCache> plans_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Engine>> free_;
};

Result<std::shared_ptr<SingleCall>> SingleCall::make(const Asked& asked) {
  LONGSPAN_TRY(const Request request, request_of(asked));
  LONGSPAN_TRY(const Problem problem, parse_problem(asked.problem));
  LONGSPAN_TRY(Engines* const engines, Engines::of(asked.ordinal));
  LONGSPAN_TRY(const std::unique_ptr<Engine> engine, engines->make(options_of(request)));
  LONGSPAN_TRY(std::shared_ptr<const Call> call,
               request.plan ? engine->load(request.plan->to_bytes()) : engine->prepare(problem));
  return std::shared_ptr<SingleCall>(new SingleCall(std::move(call), *engines));
}

Result<std::shared_ptr<SingleCall>> SingleCall::find(const Asked& asked) {
  static auto* const calls = new Registry<SingleCall>(make);
  return calls->find(asked);
}

Status SingleCall::run(const std::function<Status(Engine&)>& body) {
  LONGSPAN_TRY(std::unique_ptr<Engine> engine, engines_.take());
  // An engine that failed has given up for good.
  LONGSPAN_CHECK_OK(body(*engine));
  engines_.give_back(std::move(engine));
  return {};
}

}  // namespace longspan::xla
