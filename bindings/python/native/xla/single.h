// Calls of one rank: the engine does all of it.
#pragma once

#include <functional>
#include <memory>

#include "longspan/engine.h"
#include "registry.h"

namespace longspan::xla {

/// Thread-safe: XLA runs several devices of the host on threads of their own.
class SingleCall {
 public:
  /// What is asked for, prepared. Errors of request_of, parse_problem and Engine::prepare.
  static Result<std::shared_ptr<SingleCall>> find(const Asked& asked);

  const Call& call() const { return *call_; }
  /// Runs `body` on an engine that nobody else uses meanwhile.
  Status run(const std::function<Status(Engine&)>& body);

 private:
  class Engines;
  SingleCall(std::shared_ptr<const Call> call, Engines& engines)
      : call_(std::move(call)), engines_(engines) {}
  static Result<std::shared_ptr<SingleCall>> make(const Asked& asked);

  std::shared_ptr<const Call> call_;
  Engines& engines_;
};

}  // namespace longspan::xla
