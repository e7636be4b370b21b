#include "longspan/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace longspan {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "problem"};
}

Status check_shape(const Problem& p) {
  if (p.heads_q < 1 || p.heads_kv < 1) {
    return invalid(
        fmt::format("heads={}/{}: both counts must be at least 1", p.heads_q, p.heads_kv));
  }
  if (p.heads_q % p.heads_kv != 0) {
    return invalid(
        fmt::format("heads={}/{}: the query heads {} must be a multiple of the key heads {}",
                    p.heads_q, p.heads_kv, p.heads_q, p.heads_kv));
  }
  if (p.dim_qk < 1 || p.dim_qk > kMaxDim) {
    return invalid(fmt::format("dim={}: must be 1..{}", p.dim_qk, kMaxDim));
  }
  if (p.dim_v < 1 || p.dim_v > kMaxDim) {
    return invalid(fmt::format("dim_v={}: must be 1..{}", p.dim_v, kMaxDim));
  }
  constexpr double kLargestScale = 1e38;  // what the f32 arithmetic of other types can hold
  if (!std::isfinite(p.scale) || (p.dtype != DType::kF64 && std::abs(p.scale) > kLargestScale)) {
    return invalid(fmt::format("scale={}: must be finite and at most {} in magnitude (f64: finite)",
                               p.scale, kLargestScale));
  }
  if (p.lengths.sequences.empty()) return invalid("lengths: at least one sequence is needed");
  return {};
}

struct Side {
  std::string_view prefix;  // "" or "kv_"
  int64_t Sequence::*length;
  int64_t Sequence::*extent;
  int64_t Sequence::*offset;
  int64_t tokens;
};

Status check_side(const Lengths& lengths, const Side& side) {
  int64_t end = 0;
  for (size_t i = 0; i < lengths.sequences.size(); ++i) {
    const Sequence& sequence = lengths.sequences[i];
    const int64_t length = sequence.*side.length;
    const int64_t extent = sequence.*side.extent;
    if (length < 0 || length > kMaxTokens) {
      return invalid(fmt::format("{}lengths: sequence {} has length {}; must be 0..{}", side.prefix,
                                 i, length, kMaxTokens));
    }
    if (extent < length || extent > kMaxTokens) {
      return invalid(
          fmt::format("{}padded: sequence {} has extent {} but length {}; the extent must "
                      "be at least the length and at most {}",
                      side.prefix, i, extent, length, kMaxTokens));
    }
    if (sequence.*side.offset != end) {
      return invalid(
          fmt::format("{}offset of sequence {} is {}; sequences lie one behind the other, "
                      "so {} is needed",
                      side.prefix, i, sequence.*side.offset, end));
    }
    end += extent;
    if (end > kMaxTokens) {
      return invalid(
          fmt::format("{}lengths: {} tokens up to sequence {}; at most {} fit one tensor",
                      side.prefix, end, i, kMaxTokens));
    }
  }
  if (side.tokens < end || side.tokens > kMaxTokens) {
    return invalid(fmt::format("{}tokens={}: the sequences need {} rows and at most {} are allowed",
                               side.prefix, side.tokens, end, kMaxTokens));
  }
  return {};
}

Status check_size(const Problem& p) {
  const auto elements = [&](int64_t tokens, int64_t heads) {
    return static_cast<__int128>(tokens) * heads * std::max(p.dim_qk, p.dim_v);
  };
  if (elements(p.lengths.tokens_q, p.heads_q) > kMaxElements ||
      elements(p.lengths.tokens_k, p.heads_kv) > kMaxElements) {
    return invalid(
        fmt::format("{} and {} rows of heads={}/{} and dim={}, dim_v={}: a tensor of more "
                    "than {} elements; use fewer tokens or heads",
                    p.lengths.tokens_q, p.lengths.tokens_k, p.heads_q, p.heads_kv, p.dim_qk,
                    p.dim_v, kMaxElements));
  }
  return {};
}

/// What changes scores and probabilities.
Status check_scores(const Problem& p) {
  constexpr double kLargestCap = 1e38;  // as of the scale
  if (!(p.softcap >= 0) || !(p.softcap <= (p.dtype == DType::kF64 ? 1e308 : kLargestCap))) {
    return invalid(
        fmt::format("softcap={}: must be 0 (off) or positive and at most {} (f64: 1e308)",
                    p.softcap, kLargestCap));
  }
  if (!(p.dropout >= 0 && p.dropout < 1)) {
    return invalid(fmt::format("dropout={}: must be in [0, 1)", p.dropout));
  }
  const ModificationRef& m = p.modification;
  if (m && m.functions->derivative && !m.functions->score) {
    return invalid("modification: it has a derivative but no score function; set both or neither");
  }
  return {};
}

Status check_mask(const Problem& p) {
  for (const auto& [side, limit] : {std::pair{"left", p.window_left}, {"right", p.window_right}}) {
    if (limit < -1 || limit > kMaxTokens) {
      return invalid(
          fmt::format("window: {} is {}; must be -1 (unbounded) to {}", side, limit, kMaxTokens));
    }
  }
  if (p.chunk < 0 || p.chunk > kMaxTokens) {
    return invalid(fmt::format("chunk={}: must be 0 (off) to {}", p.chunk, kMaxTokens));
  }
  const size_t sequences = p.lengths.sequences.size();
  if (!p.prefix.empty() && p.prefix.size() != sequences) {
    return invalid(
        fmt::format("prefix has {} entries but lengths has {}; one per sequence is "
                    "needed",
                    p.prefix.size(), sequences));
  }
  for (size_t i = 0; i < p.prefix.size(); ++i) {
    if (p.prefix[i] >= 0 && p.prefix[i] <= kMaxTokens) continue;
    return invalid(
        fmt::format("prefix: sequence {} has {}; must be 0..{}", i, p.prefix[i], kMaxTokens));
  }
  const std::array<int64_t, 4> bias = p.bias_shape();
  const __int128 elements = static_cast<__int128>(bias[0]) * bias[1] * bias[2] * bias[3];
  if (elements <= kMaxElements) return {};
  return invalid(
      fmt::format("bias={}: a tensor of [{}, {}, {}, {}], at most {} elements are "
                  "allowed; use shorter sequences or another bias",
                  name(p.bias), bias[0], bias[1], bias[2], bias[3], kMaxElements));
}

/// Every sequence starts a page of its own.
Status check_pages(const Problem& p) {
  if (p.page < 0 || p.page > kMaxTokens) {
    return invalid(fmt::format("page={}: must be 0 (off) to {}", p.page, kMaxTokens));
  }
  if (p.page == 0) return {};
  for (size_t i = 0; i < p.lengths.sequences.size(); ++i) {
    const int64_t extent = p.lengths.sequences[i].k_extent;
    if (extent % p.page == 0) continue;
    return invalid(
        fmt::format("kv_padded: sequence {} has extent {}, no multiple of page={}; leave "
                    "kv_padded out or round it up",
                    i, extent, p.page));
  }
  return {};
}

/// Actual lengths are int32.
Status check_device_lengths(const Problem& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; p.device_lengths && i < p.lengths.sequences.size(); ++i) {
    const Sequence& s = p.lengths.sequences[i];
    if (std::max(s.q_length, s.k_length) <= kMost) continue;
    return invalid(fmt::format("device_lengths: sequence {} has capacity {}; at most {}", i,
                               std::max(s.q_length, s.k_length), kMost));
  }
  return {};
}

Status check_capacity(const Capacity& capacity, const Capacity& needed) {
  if (capacity.tokens_q >= needed.tokens_q && capacity.tokens_k >= needed.tokens_k &&
      capacity.sequences >= needed.sequences) {
    return {};
  }
  return invalid(
      fmt::format("capacity of {} and {} rows and {} sequences: the lengths need {}, {} "
                  "and {}",
                  capacity.tokens_q, capacity.tokens_k, capacity.sequences, needed.tokens_q,
                  needed.tokens_k, needed.sequences));
}

bool uniform(const Lengths& lengths, int64_t Sequence::*extent, int64_t tokens) {
  const int64_t first = lengths.sequences.front().*extent;
  const auto same = [&](const Sequence& s) { return s.*extent == first; };
  return std::all_of(lengths.sequences.begin(), lengths.sequences.end(), same) &&
         tokens == first * static_cast<int64_t>(lengths.sequences.size());
}

}  // namespace

double Problem::flops(Direction direction) const {
  const double pairs = static_cast<double>(visible_pairs()) * static_cast<double>(heads_q);
  const auto qk = static_cast<double>(dim_qk);
  const auto v = static_cast<double>(dim_v);
  return pairs * (direction == Direction::kForward ? 2 * (qk + v) : 2 * (3 * qk + 2 * v));
}

std::array<int64_t, 4> Problem::bias_shape() const {
  if (bias == Bias::kNone) return {};
  int64_t sq = 0;
  int64_t skv = 0;
  for (const Sequence& s : lengths.sequences) {
    sq = std::max(sq, s.q_extent);
    skv = std::max(skv, s.k_extent);
  }
  const bool batches = bias == Bias::kB1 || bias == Bias::kBH;
  const bool heads = bias == Bias::k1H || bias == Bias::kBH;
  return {batches ? static_cast<int64_t>(lengths.sequences.size()) : 1, heads ? heads_q : 1,
          bias == Bias::k111S ? 1 : sq, skv};
}

Result<Problem> validated(Problem problem) {
  LONGSPAN_CHECK_OK(check_shape(problem));
  LONGSPAN_CHECK_OK(check_scores(problem));
  const Lengths& lengths = problem.lengths;
  const Side q{"", &Sequence::q_length, &Sequence::q_extent, &Sequence::q_offset, lengths.tokens_q};
  const Side k{"kv_", &Sequence::k_length, &Sequence::k_extent, &Sequence::k_offset,
               lengths.tokens_k};
  LONGSPAN_CHECK_OK(check_side(lengths, q));
  LONGSPAN_CHECK_OK(check_side(lengths, k));
  if (problem.layout != Layout::kTHD &&
      !(uniform(lengths, q.extent, q.tokens) && uniform(lengths, k.extent, k.tokens))) {
    return invalid(
        fmt::format("layout={}: needs equal extents of all sequences and no unused rows; "
                    "pad the sequences (padded, kv_padded) or use layout=thd",
                    name(problem.layout)));
  }
  LONGSPAN_CHECK_OK(check_size(problem));
  LONGSPAN_CHECK_OK(check_mask(problem));
  LONGSPAN_CHECK_OK(check_pages(problem));
  LONGSPAN_CHECK_OK(check_device_lengths(problem));
  const bool any_prefix = std::any_of(problem.prefix.begin(), problem.prefix.end(),
                                      [](int64_t keys) { return keys != 0; });
  if (!any_prefix) problem.prefix.clear();
  const Capacity needed{lengths.tokens_q, lengths.tokens_k,
                        static_cast<int64_t>(lengths.sequences.size())};
  if (problem.capacity == Capacity{}) problem.capacity = needed;
  LONGSPAN_CHECK_OK(check_capacity(problem.capacity, needed));
  return problem;
}

Result<std::vector<int64_t>> lengths_from_ids(std::span<const int64_t> ids) {
  std::vector<int64_t> lengths;
  std::set<int64_t> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && ids[i] == ids[i - 1]) {
      ++lengths.back();
      continue;
    }
    if (!seen.insert(ids[i]).second) {
      return invalid(
          fmt::format("document id {} comes back at token {} after another document; "
                      "order the tokens by document",
                      ids[i], i));
    }
    lengths.push_back(1);
  }
  return lengths;
}

Result<std::vector<int64_t>> lengths_from_cumulative(const std::vector<int64_t>& cu,
                                                     std::string_view name) {
  if (cu.size() < 2) {
    return invalid(
        fmt::format("{} has {} entries; sequences + 1 >= 2 are needed", name, cu.size()));
  }
  if (cu.front() != 0) return invalid(fmt::format("{}[0] is {}; must be 0", name, cu.front()));
  std::vector<int64_t> lengths;
  lengths.reserve(cu.size() - 1);
  for (size_t i = 1; i < cu.size(); ++i) {
    if (cu[i] < cu[i - 1]) {
      return invalid(
          fmt::format("{} must not decrease: entry {} is {} after {}", name, i, cu[i], cu[i - 1]));
    }
    if (cu[i] > kMaxTokens) {
      return invalid(fmt::format("{}[{}] is {}; at most {}", name, i, cu[i], kMaxTokens));
    }
    lengths.push_back(cu[i] - cu[i - 1]);
  }
  return lengths;
}

}  // namespace longspan
