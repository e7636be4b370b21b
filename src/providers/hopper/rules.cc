#include "providers/hopper/rules.h"

#include <fmt/format.h>

#include <utility>

#include "providers/hopper/heuristics.h"
#include "providers/rules.h"
#include "providers/sm90.h"

namespace longspan::hopper {
namespace {

using Refusal = std::optional<Decline>;

using sm90::kOthers;
using sm90::refused_device;

Refusal refused_type(const TileProblem& p) {
  if (p.dtype == DType::kF16 || p.dtype == DType::kBF16) return std::nullopt;
  return Decline{DeclineCode::kDType,
                 fmt::format("dtype {} is not f16 or bf16; {}", name(p.dtype), kOthers)};
}

Refusal refused_dims(const TileProblem& p) {
  for (const auto& [what, dim] : {std::pair{"dim", p.dim_qk}, std::pair{"dim_v", p.dim_v}}) {
    if (dim % 8 != 0) {  // rows are read in units of 16 bytes
      return Decline{DeclineCode::kHeadDim,
                     fmt::format("{} {} is no multiple of 8; {}", what, dim, kOthers)};
    }
    if (dim > kMostColumns) {
      return Decline{DeclineCode::kHeadDim,
                     fmt::format("{} {} > {}; {}", what, dim, kMostColumns, kOthers)};
    }
  }
  return std::nullopt;
}

/// Kernels count rows, and blocks of all heads, in 32 bits.
Refusal refused_capacity(const TileProblem& p) {
  constexpr int64_t kMostRows = int64_t{1} << 28;
  constexpr int64_t kMostHeadRows = int64_t{1} << 30;
  for (const auto& [what, rows] :
       {std::pair{"query", p.capacity_q}, std::pair{"key", p.capacity_k}}) {
    if (rows <= kMostRows) continue;
    return Decline{DeclineCode::kCapacity,
                   fmt::format("capacity of {} {} rows > {}; more ranks or {}", rows, what,
                               kMostRows, kOthers)};
  }
  if (p.capacity_q * p.heads_q <= kMostHeadRows) return std::nullopt;
  return Decline{DeclineCode::kCapacity,
                 fmt::format("capacity of {} query rows of {} heads > {} rows of one head; more "
                             "ranks or {}",
                             p.capacity_q, p.heads_q, kMostHeadRows, kOthers)};
}

/// Backward writes P and dS to memory, which narrow heads do not pay for.
Refusal refused_backward(const TileProblem& p) {
  constexpr int64_t kNarrow = 128;
  if (p.dim_qk <= kNarrow && p.dim_v <= kNarrow) {
    return Decline{DeclineCode::kHeadDim,
                   fmt::format("dim {} and dim_v {} are not above {}, which backward of hopper is "
                               "for; {}",
                               p.dim_qk, p.dim_v, kNarrow, kOthers)};
  }
  Features others = p.features;
  others.softcap = others.alibi = others.dropout = false;
  return sm90::refused_features(others, "backward of hopper");
}

}  // namespace

Refusal refusal(const TileProblem& problem, const Device& device) {
  if (auto decline = refused_device(device)) return decline;
  if (auto decline = longspan::refusal(problem)) return decline;
  if (auto decline = refused_type(problem)) return decline;
  if (auto decline = refused_dims(problem)) return decline;
  if (auto decline = refused_capacity(problem)) return decline;
  if (problem.direction == Direction::kBackward) return refused_backward(problem);
  Features others = problem.features;
  others.softcap = others.alibi = others.dropout = others.max_logit = others.paged = false;
  return sm90::refused_features(others, "hopper");
}

Refusal pull_refusal(const TileProblem& p) {
  const auto refused = [](std::string detail) {
    return Decline{DeclineCode::kPull, std::move(detail)};
  };
  if (!p.features.whole) {
    return refused(
        "merged results are added to keys that are there; pulling launches write whole "
        "ones");
  }
  if (has_terms(p.features)) return refused("kernels with score terms or max_logit do not pull");
  if (p.features.paged) return refused("paged keys and values are not pulled");
  const int64_t columns = extents(narrowest_shape(p.dim_qk, p.dim_v)).dim;
  if (columns <= kMostPullingColumns) return std::nullopt;
  return refused(
      fmt::format("kernels of {} columns leave no warp that could pull; those of up to {} do",
                  columns, kMostPullingColumns));
}

}  // namespace longspan::hopper
