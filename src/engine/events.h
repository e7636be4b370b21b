// What an engine tells its log.
#pragma once

#include <cstddef>

#include "engine/call.h"
#include "longspan/engine.h"

namespace longspan {

/// One rank's. Every message begins with the rank. Nothing is formatted without a log.
class Events {
 public:
  /// The log and the plan cache of `options`, which outlive this.
  Events(const Options& options, int rank);

  /// What was chosen, where a preferred provider is not it, and which libraries were opened for it.
  void chosen(const Explanation& explanation);
  /// A cold call is ready. Also what that did to the plan cache.
  void prepared(const PreparedCall& call, double seconds);
  /// The call that was prepared longest ago is forgotten.
  void forgot_call(size_t kept) const;
  void guard_failed(const Error& error) const;
  /// Only the first is told: later calls return the same.
  void lost(const Error& error);

 private:
  void chosen(Direction direction, const Selection& selection) const;
  void plans();
  void libraries();

  const Options& options_;
  const int rank_;
  size_t libraries_told_ = 0;
  CacheStatistics plans_told_;
  bool lost_ = false;
};

}  // namespace longspan
