#include "providers/cudnn/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "longspan/problem.h"
#include "providers/cudnn/budget.h"
#include "providers/cudnn/groups.h"
#include "providers/cudnn/heads.h"
#include "providers/rules.h"
#include "providers/sm90.h"

namespace longspan::cudnn {
namespace {

using Refusal = std::optional<Decline>;
using Dims = std::pair<int64_t, int64_t>;

using sm90::kOthers;
using sm90::refused_device;

Refusal refused_dims(const TileProblem& p) {
  if (p.dtype != DType::kF16 && p.dtype != DType::kBF16) {
    return Decline{DeclineCode::kDType,
                   fmt::format("dtype {} is not f16 or bf16; {}", name(p.dtype), kOthers)};
  }
  for (const auto& [what, dim] : {std::pair{"dim", p.dim_qk}, std::pair{"dim_v", p.dim_v}}) {
    if (dim % 8 != 0) {
      return Decline{DeclineCode::kHeadDim,
                     fmt::format("{} {} is no multiple of 8; {}", what, dim, kOthers)};
    }
    if (dim > 256) {
      return Decline{DeclineCode::kHeadDim, fmt::format("{} {} > 256; {}", what, dim, kOthers)};
    }
  }
  // Pairs of different dims whose results have been compared with float64. Others compile, and
  // some are known to train wrongly.
  constexpr std::array<Dims, 3> kBoth = {{{192, 128}, {128, 64}, {64, 128}}};
  const Dims dims = {p.dim_qk, p.dim_v};
  if (p.dim_qk == p.dim_v || std::find(kBoth.begin(), kBoth.end(), dims) != kBoth.end()) {
    return std::nullopt;
  }
  const bool forward = p.direction == Direction::kForward;
  if (forward && dims == Dims{256, 128}) return std::nullopt;
  return Decline{DeclineCode::kHeadDim,
                 fmt::format("dim {} with dim_v {} is not verified; equal dims, 192/128, 128/64, "
                             "64/128{} are: {}",
                             p.dim_qk, p.dim_v, forward ? " and 256/128" : "", kOthers)};
}

Refusal refused_heads(const TileProblem& p) {
  constexpr int64_t kMostHeads = 32768;  // blocks of a launch
  if (p.heads_q > kMostHeads) {
    return Decline{DeclineCode::kHeads,
                   fmt::format("{} query heads > {}; {}", p.heads_q, kMostHeads, kOthers)};
  }
  const bool whole_groups = p.group_offset == 0 && p.heads_q % p.group == 0;
  if (whole_groups || key_heads(p) == 1) return std::nullopt;
  return Decline{DeclineCode::kHeads,
                 fmt::format("{} query heads from place {} of a group of {} do not share their "
                             "{} key heads evenly; {}",
                             p.heads_q, p.group_offset, p.group, key_heads(p), kOthers)};
}

Refusal refused(DeclineCode code, const char* what) {
  return Decline{code, fmt::format("{} is not offered by cudnn; {} or remove it from the problem",
                                   what, kOthers)};
}

/// Entries that lose rows when they run are ragged ones.
Refusal refused_device_lengths(const TileProblem& p) {
  if (!p.features.device_lengths) return std::nullopt;
  if (p.features.whole) return refused(DeclineCode::kWhole, "whole results with device_lengths");
  if (p.features.bias != Bias::kNone)
    return refused(DeclineCode::kBias, "bias with device_lengths");
  if (p.direction == Direction::kForward || bounds_totals(p)) return std::nullopt;
  return Decline{DeclineCode::kDeviceLengths,
                 fmt::format("device_lengths in backward with dim {}, dim_v {} and "
                             "deterministic={}: dims that are multiples of 16 and "
                             "deterministic=false are offered; {}",
                             p.dim_qk, p.dim_v, p.features.deterministic, kOthers)};
}

/// Bias and scores of a key head are in memory as a whole.
Refusal refused_bias(const TileProblem& p) {
  const TileProblem slice = head_slice(p);
  const int64_t bytes = slice_bytes(slice);
  if (bytes <= kMostSliceBytes) return std::nullopt;
  return Decline{
      DeclineCode::kBias,
      fmt::format("bias of {} query heads on one key head and {} x {} rows takes {} "
                  "bytes at a time, more than {}; more ranks or {}",
                  slice.heads_q, p.capacity_q, p.capacity_k, bytes, kMostSliceBytes, kOthers)};
}

Refusal refused_features(const TileProblem& p) {
  const Features& f = p.features;
  if (f.softcap) return refused(DeclineCode::kSoftcap, "softcap");
  // Slopes would be copied from host memory at every call, and positions are those of the tile.
  if (f.alibi) return refused(DeclineCode::kAlibi, "alibi");
  // Its random numbers are not longspan's: the mask would change with the provider.
  if (f.dropout) return refused(DeclineCode::kDropout, "dropout");
  if (f.modification) return refused(DeclineCode::kModification, "a modification");
  if (f.paged) return refused(DeclineCode::kPage, "page");
  if (f.max_logit) return refused(DeclineCode::kMaxLogit, "max_logit (right from cuDNN 9.21)");
  if (f.bias != Bias::kNone) return refused_bias(p);
  if (!f.deterministic || p.direction == Direction::kForward) return std::nullopt;
  const int64_t bytes = score_bytes(p);
  if (bytes <= kMostDeterministicBytes) return std::nullopt;
  return Decline{
      DeclineCode::kDeterministic,
      fmt::format("deterministic backward of {} heads and {} x {} rows writes {} bytes "
                  "of scores, more than {}; more ranks or {}",
                  p.heads_q, p.capacity_q, p.capacity_k, bytes, kMostDeterministicBytes, kOthers)};
}

Refusal refused_capacity(const TileProblem& p) {
  constexpr int64_t kMostRows = int64_t{1} << 30;
  constexpr int64_t kMostHeadRows = int64_t{1} << 31;
  for (const auto& [what, rows, heads] : {std::tuple{"query", p.capacity_q, p.heads_q},
                                          std::tuple{"key", p.capacity_k, p.heads_kv}}) {
    if (rows <= kMostRows && rows * heads <= kMostHeadRows) continue;
    return Decline{DeclineCode::kCapacity,
                   fmt::format("capacity of {} {} rows of {} heads: more than {} rows or {} rows "
                               "of one head; more ranks or {}",
                               rows, what, heads, kMostRows, kMostHeadRows, kOthers)};
  }
  return std::nullopt;
}

}  // namespace

Refusal refusal(const TileProblem& problem, const Device& device) {
  if (auto decline = refused_device(device)) return decline;
  if (auto decline = longspan::refusal(problem)) return decline;
  if (auto decline = refused_dims(problem)) return decline;
  if (auto decline = refused_heads(problem)) return decline;
  if (auto decline = refused_capacity(problem)) return decline;
  if (auto decline = refused_device_lengths(problem)) return decline;
  return refused_features(problem);
}

}  // namespace longspan::cudnn
