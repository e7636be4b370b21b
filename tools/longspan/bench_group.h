// All ranks of a benchmark, as threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench_rank.h"
#include "group.h"
#include "verify.h"

namespace longspan::tool {

/// What the float64 check of a benchmark found.
struct BenchCheck {
  std::vector<NamedMeasure> measures;
  std::vector<Check> checks;

  bool pass() const;
};

/// Used by one thread at a time.
class BenchGroup {
 public:
  /// Prepares every rank and, with `graphs`, records both directions after a first run. A group
  /// that cannot be recorded is made again without; graph_reason() says why. `task.inputs` outlives
  /// it.
  static Result<std::unique_ptr<BenchGroup>> make(const GroupTask& task, bool graphs);

  /// Of each iteration the slowest rank.
  Result<Slice> run(const SliceTask& task);
  /// Runs once on outputs that were NaN and compares with float64 attention.
  Result<BenchCheck> check(const Inputs& inputs);

  bool recorded() const { return recorded_; }
  const std::string& graph_reason() const { return graph_reason_; }
  const Call& call() const { return *ranks_.front()->results().call; }
  const std::vector<std::unique_ptr<BenchRank>>& ranks() const { return ranks_; }

 private:
  explicit BenchGroup(Device device) : device_(std::move(device)) {}
  static Result<std::unique_ptr<BenchGroup>> prepare(const GroupTask& task);
  Status record();

  Device device_;  // of rank 0
  std::vector<std::unique_ptr<BenchRank>> ranks_;
  bool recorded_ = false;
  std::string graph_reason_ = "not asked for";
};

/// Element by element the larger of two; of equal sizes.
Slice slower(const Slice& a, const Slice& b);

}  // namespace longspan::tool
