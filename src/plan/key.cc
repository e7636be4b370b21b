#include "plan/key.h"

#include <functional>
#include <string_view>
#include <tuple>

namespace longspan {
namespace {

/// Every field that tells two keys apart; the comparison is the defaulted one.
auto fields(const PlanKey& key) {
  const TileProblem& p = key.problem;
  return std::make_tuple(
      std::string_view(key.provider), std::string_view(key.device), key.threads,
      static_cast<int>(p.direction), static_cast<int>(p.dtype), p.heads_q, p.heads_kv, p.group,
      p.group_offset, p.dim_qk, p.dim_v, p.capacity_q, p.capacity_k, p.score_bytes,
      p.features.window, p.features.softcap, p.features.alibi, static_cast<int>(p.features.bias),
      p.features.dropout, p.features.max_logit, p.features.paged, p.features.device_lengths,
      p.features.deterministic, static_cast<int>(p.features.fp8), p.features.modification);
}

}  // namespace

int64_t bucket(int64_t n) {
  int64_t size = 64;
  while (size < n) {
    if (size / 2 * 3 >= n) return size / 2 * 3;
    size *= 2;
  }
  return size;
}

PlanKey plan_key(const Provider& provider, const TileProblem& problem, const Device& device) {
  PlanKey key{std::string(provider.name()), device.name, device.threads, problem};
  key.problem.capacity_q = bucket(problem.capacity_q);
  key.problem.capacity_k = bucket(problem.capacity_k);
  return key;
}

size_t PlanKeyHash::operator()(const PlanKey& key) const {
  return std::apply(
      [](const auto&... field) {
        size_t hash = 0;
        ((hash = hash * 0x9e3779b97f4a7c15u + std::hash<std::decay_t<decltype(field)>>()(field)),
         ...);
        return hash;
      },
      fields(key));
}

}  // namespace longspan
