// One rank of a benchmark: prepared once, timed slice by slice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device_clock.h"
#include "rank.h"
#include "workbench.h"

namespace longspan::tool {

/// What a slice runs: `warmup` iterations that are not timed, then `iterations` that are, queued
/// without waiting in between. An iteration is forward and, where there is one, backward, or `only`
/// one of them; backward alone takes what an earlier forward left.
struct SliceTask {
  int warmup = 0;
  int iterations = 1;
  bool replay = false;  // recorded calls in place of eager ones
  std::optional<Direction> only;
};

/// Microseconds, one entry per timed iteration. A direction that did not run is empty.
struct Slice {
  std::vector<double> forward, backward;            // on the device
  std::vector<double> host_forward, host_backward;  // until the call returned
  double wall = 0;  // of the host per iteration, the wait for the device included
};

/// Used by one thread at a time, and like the engine by all ranks together.
class BenchRank {
 public:
  /// `task.inputs` outlives it.
  static Result<std::unique_ptr<BenchRank>> make(const RankTask& task);

  Result<Slice> run(const SliceTask& task);
  /// Records both directions for replay. The rank has run before.
  Status record();
  /// Waits for the device and brings the results of the last iteration to the host, where `poison`
  /// put NaN before.
  Status download() { return bench_.mirror.download(); }
  Status poison();

  const RankResults& results() const { return results_; }
  Counters counters() const { return engine_->counters(); }

 private:
  BenchRank(const RankTask& task, std::unique_ptr<Engine> engine)
      : engine_(std::move(engine)), bench_(task.device, task.communicator) {}

  Status set_up(const RankTask& task);
  Status forward();
  Status backward();
  bool has_backward() const { return !results_.call->explanation().forward_only; }
  bool runs(const SliceTask& task, Direction direction) const;
  Status iterate(const SliceTask& task, Slice* slice);

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<DeviceClock> clock_;
  ShardInputs inputs_;
  RankResults results_;
  Workbench bench_;
  std::unique_ptr<Recording> recorded_forward_, recorded_backward_;
};

}  // namespace longspan::tool
