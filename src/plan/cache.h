// Verdicts and plans, kept under one key.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "longspan/engine.h"
#include "plan/key.h"

namespace longspan {

/// Thread-safe. No lock is held while a provider considers or prepares, and it does either once per
/// key however many threads ask.
class PlanCache {
 public:
  /// Keeps at least one entry.
  explicit PlanCache(size_t capacity) : capacity_(capacity < 1 ? 1 : capacity) {}

  /// What the provider says, asked once per key: declines are kept like offers.
  Verdict consider(const Provider& provider, const TileProblem& problem, const Device& device);

  /// The plan, prepared once per key. Failures are not kept: the next call tries again.
  Result<std::shared_ptr<const Plan>> plan(const Provider& provider, const TileProblem& problem,
                                           const Device& device);

  CacheStatistics statistics() const;

 private:
  struct Entry;
  using Order = std::list<std::pair<PlanKey, std::shared_ptr<Entry>>>;  // most recent first

  std::shared_ptr<Entry> entry(PlanKey key);
  Verdict considered(Entry& entry, const Provider& provider, const PlanKey& key,
                     const Device& device);

  const size_t capacity_;
  mutable std::mutex mutex_;
  Order order_;
  std::unordered_map<PlanKey, Order::iterator, PlanKeyHash> index_;
  CacheStatistics statistics_;
};

}  // namespace longspan
