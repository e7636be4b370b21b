// What names a prepared plan.
#pragma once

#include <cstdint>
#include <string>

#include "longspan/provider.h"

namespace longspan {

/// Capacities are bucketed, so that ragged batches share plans; no run-time value is in the key.
struct PlanKey {
  std::string provider;
  std::string device;
  int threads = 1;
  TileProblem problem;

  bool operator==(const PlanKey&) const = default;
};

/// The key of `problem`, its capacities rounded up to buckets.
PlanKey plan_key(const Provider& provider, const TileProblem& problem, const Device& device);

/// The smallest of 64, 96, 128, 192, 256, ... (2^i and 3 * 2^i) that is at least n: at most half as
/// much again, and about two plans for each doubling.
int64_t bucket(int64_t n);

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const;
};

}  // namespace longspan
