#include "longspan/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string_view name(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}
std::string_view name(MaskKind kind) { return kind == MaskKind::kNone ? "none" : "causal"; }
std::string_view name(Align align) {
  return align == Align::kTopLeft ? "top_left" : "bottom_right";
}
std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::kBSHD: return "bshd";
    case Layout::kSBHD: return "sbhd";
    case Layout::kTHD: return "thd";
  }
  return "";
}

Band Problem::band(const Sequence& sequence) const {
  if (mask == MaskKind::kNone) return {};
  const int64_t shift = align == Align::kTopLeft ? 0 : sequence.k_length - sequence.q_length;
  return {-kUnbounded, shift};
}

int64_t Problem::visible_pairs() const {
  int64_t pairs = 0;
  for (const Sequence& s : lengths.sequences) pairs += area(band(s), s.q_length, s.k_length);
  return pairs;
}

double Problem::flops(Direction direction) const {
  const double pairs = static_cast<double>(visible_pairs()) * static_cast<double>(heads_q);
  const auto qk = static_cast<double>(dim_qk);
  const auto v = static_cast<double>(dim_v);
  return pairs * (direction == Direction::kForward ? 2 * (qk + v) : 2 * (3 * qk + 2 * v));
}

Result<Problem> validated(Problem problem) {
  LONGSPAN_CHECK_OK(check_shape(problem));
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
  const Capacity needed{lengths.tokens_q, lengths.tokens_k,
                        static_cast<int64_t>(lengths.sequences.size())};
  if (problem.capacity == Capacity{}) problem.capacity = needed;
  LONGSPAN_CHECK_OK(check_capacity(problem.capacity, needed));
  return problem;
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
