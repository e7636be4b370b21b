#include "providers/prepared/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "providers/rows/entries.h"
#include "providers/rules.h"
#include "providers/sm90.h"

namespace longspan::prepared {
namespace {

using Refusal = std::optional<Decline>;

using sm90::kOthers;
using sm90::refused_device;

Refusal refused_types(const TileProblem& p) {
  if (p.dtype != DType::kF16 && p.dtype != DType::kBF16) {
    return Decline{DeclineCode::kDType,
                   fmt::format("dtype {} is not f16 or bf16; {}", name(p.dtype), kOthers)};
  }
  for (const auto& [what, dim] : {std::pair{"dim", p.dim_qk}, std::pair{"dim_v", p.dim_v}}) {
    if (dim % 8 == 0 && dim <= 512) continue;
    return Decline{DeclineCode::kHeadDim,
                   fmt::format("{} {} is no multiple of 8 up to 512; {}", what, dim, kOthers)};
  }
  return std::nullopt;
}

/// Engines pair query head i with key head i / group.
Refusal refused_heads(const TileProblem& p) {
  const bool whole_groups = p.group_offset == 0 && p.heads_q % p.group == 0;
  if (whole_groups || rows::key_heads(p) == 1) return std::nullopt;
  return Decline{DeclineCode::kHeads,
                 fmt::format("{} query heads from place {} of a group of {} do not share their {} "
                             "key heads evenly; {}",
                             p.heads_q, p.group_offset, p.group, rows::key_heads(p), kOthers)};
}

/// Rows are counted in 32 bits, and rows of all heads too.
Refusal refused_capacity(const TileProblem& p) {
  constexpr int64_t kMostRows = int64_t{1} << 30;
  for (const auto& [what, rows, heads] : {std::tuple{"query", p.capacity_q, p.heads_q},
                                          std::tuple{"key", p.capacity_k, p.heads_kv}}) {
    if (rows * heads <= kMostRows) continue;
    return Decline{DeclineCode::kCapacity,
                   fmt::format("capacity of {} {} rows of {} heads is more than {} rows of one "
                               "head; more ranks or {}",
                               rows, what, heads, kMostRows, kOthers)};
  }
  return std::nullopt;
}

/// What no engine computes, so that no store can hold it.
Refusal refused_by_engines(const TileProblem& p) {
  const bool frost = std::max(p.dim_qk, p.dim_v) > 256 ||
                     (p.dim_qk != p.dim_v && std::pair(p.dim_qk, p.dim_v) != std::pair(192L, 128L));
  const bool backward = p.direction == Direction::kBackward;
  if (frost && backward) {
    return Decline{DeclineCode::kHeadDim,
                   fmt::format("backward of dim {}, dim_v {}: equal dims up to 256 and 192/128 are "
                               "offered by prepared; {}",
                               p.dim_qk, p.dim_v, kOthers)};
  }
  if (frost && p.features.window) {
    return Decline{DeclineCode::kWindow,
                   fmt::format("a window with dim {}, dim_v {} is fixed when FROST is built; {}",
                               p.dim_qk, p.dim_v, kOthers)};
  }
  if (backward && p.dim_qk != p.dim_v && rows::key_heads(p) != p.heads_q) {
    return Decline{DeclineCode::kHeads,
                   fmt::format("backward of dim {}, dim_v {} needs a key head for each of {} query "
                               "heads, there are {}; {}",
                               p.dim_qk, p.dim_v, p.heads_q, rows::key_heads(p), kOthers)};
  }
  return std::nullopt;
}

}  // namespace

Refusal refusal(const TileProblem& problem, const Device& device) {
  if (auto decline = refused_device(device)) return decline;
  if (auto decline = longspan::refusal(problem)) return decline;
  if (auto decline = refused_types(problem)) return decline;
  if (auto decline = refused_heads(problem)) return decline;
  if (auto decline = refused_capacity(problem)) return decline;
  if (auto decline = refused_by_engines(problem)) return decline;
  return sm90::refused_features(problem.features, "prepared");
}

}  // namespace longspan::prepared
