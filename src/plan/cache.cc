#include "plan/cache.h"

#include <optional>
#include <utility>

namespace longspan {

struct PlanCache::Entry {
  std::mutex mutex;  // held while the provider works on this entry alone
  std::optional<Verdict> verdict;
  std::shared_ptr<const Plan> plan;
};

namespace {

/// Callbacks without a key cannot be told from others.
bool nameless(const TileProblem& problem) {
  return problem.features.modification && problem.features.modification->empty();
}

}  // namespace

std::shared_ptr<PlanCache::Entry> PlanCache::entry(PlanKey key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(key); found != index_.end()) {
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }
  order_.emplace_front(std::move(key), std::make_shared<Entry>());
  index_.emplace(order_.front().first, order_.begin());
  if (order_.size() > capacity_) {
    index_.erase(order_.back().first);
    order_.pop_back();  // whoever uses the plan still holds it
    ++statistics_.evictions;
  }
  return order_.front().second;
}

Verdict PlanCache::considered(Entry& entry, const Provider& provider, const PlanKey& key,
                              const Device& device) {
  if (!entry.verdict) {
    entry.verdict = provider.consider(key.problem, device);
    const std::lock_guard lock(mutex_);
    if (declined(*entry.verdict)) ++statistics_.declines;
  }
  return *entry.verdict;
}

Verdict PlanCache::consider(const Provider& provider, const TileProblem& problem,
                            const Device& device) {
  const PlanKey key = plan_key(provider, problem, device);
  const std::shared_ptr<Entry> found = nameless(problem) ? std::make_shared<Entry>() : entry(key);
  const std::lock_guard lock(found->mutex);
  return considered(*found, provider, key, device);
}

Result<std::shared_ptr<const Plan>> PlanCache::plan(const Provider& provider,
                                                    const TileProblem& problem,
                                                    const Device& device) {
  const PlanKey key = plan_key(provider, problem, device);
  const std::shared_ptr<Entry> found = nameless(problem) ? std::make_shared<Entry>() : entry(key);
  const std::lock_guard lock(found->mutex);
  if (found->plan) {
    const std::lock_guard statistics_lock(mutex_);
    ++statistics_.hits;
    return found->plan;
  }
  const Verdict verdict = considered(*found, provider, key, device);
  if (const Decline* decline = declined(verdict)) {
    return Error{ErrorCode::kUnsupported, decline->detail, std::string(provider.name())};
  }
  LONGSPAN_TRY(found->plan, provider.prepare(key.problem, device));
  const std::lock_guard statistics_lock(mutex_);
  ++statistics_.builds;
  return found->plan;
}

CacheStatistics PlanCache::statistics() const {
  const std::lock_guard lock(mutex_);
  CacheStatistics result = statistics_;
  result.size = static_cast<int64_t>(order_.size());
  return result;
}

std::shared_ptr<PlanCache> make_plan_cache(size_t capacity) {
  return std::make_shared<PlanCache>(capacity);
}

CacheStatistics statistics(const PlanCache& cache) { return cache.statistics(); }

}  // namespace longspan
