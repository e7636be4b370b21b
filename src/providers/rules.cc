#include "providers/rules.h"

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "longspan/problem.h"

namespace longspan {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "provider"};
}

struct NamedView {
  const char* name;
  const TensorView& view;
  int64_t rows;
  int64_t heads;
  int64_t dim;
  bool may_be_paged = false;
};

Status fits_shape(const NamedView& v) {
  const TensorView& view = v.view;
  if (view.pages != nullptr && !v.may_be_paged) {
    return invalid(fmt::format("{} is paged, the plan was prepared without pages of it", v.name));
  }
  if (view.batch < 0 || view.seq < 0 || view.rows() != v.rows) {
    return invalid(fmt::format("{} has {} rows, expected {}", v.name, view.rows(), v.rows));
  }
  if (view.heads != v.heads) {
    return invalid(
        fmt::format("{} has {} heads, the plan was prepared for {}", v.name, view.heads, v.heads));
  }
  if (view.dim != v.dim) {
    return invalid(
        fmt::format("{} has dim {}, the plan was prepared for {}", v.name, view.dim, v.dim));
  }
  if (view.data == nullptr && v.rows > 0) {
    return invalid(fmt::format("{} has {} rows but no data", v.name, v.rows));
  }
  return {};
}

Status fits_inputs(DType dtype, std::initializer_list<NamedView> views) {
  for (const NamedView& v : views) {
    LONGSPAN_CHECK_OK(fits_shape(v));
    if (v.view.dtype != dtype) {
      return invalid(fmt::format("{} is {}, the plan was prepared for {}", v.name,
                                 name(v.view.dtype), name(dtype)));
    }
  }
  return {};
}

Status fits_carries(DType dtype, Carries carries, std::initializer_list<NamedView> views) {
  for (const NamedView& v : views) {
    LONGSPAN_CHECK_OK(fits_shape(v));
    const bool any = v.view.dtype == DType::kF32 || v.view.dtype == DType::kF64;
    if (carries == Carries::kAnyFloat && any) continue;
    if (v.view.dtype != accumulator(dtype)) {
      return invalid(fmt::format("{} is {}, partial results of {} are {}", v.name,
                                 name(v.view.dtype), name(dtype), name(accumulator(dtype))));
    }
  }
  return {};
}

bool given(const TensorView& view) { return view.rows() > 0; }

/// O and gradients: of the problem's type where they are whole.
Status fits_results(const TileProblem& p, Carries carries, std::initializer_list<NamedView> views) {
  return p.features.whole ? fits_inputs(p.dtype, views) : fits_carries(p.dtype, carries, views);
}

Status fits_rows(const TileProblem& problem, int64_t rows_q, const TensorView& k,
                 std::span<const PlacedTile> tiles) {
  const int64_t rows_k = k.rows();
  // Rows behind the last token of the last page belong to no tile.
  const int64_t unused = k.pages == nullptr ? 0 : std::max<int64_t>(k.seq - 1, 0);
  if (rows_q > problem.capacity_q) {
    return invalid(fmt::format("q has {} rows, the plan was prepared for at most {}", rows_q,
                               problem.capacity_q));
  }
  if (rows_k > problem.capacity_k + unused) {
    return invalid(fmt::format("k has {} rows, the plan was prepared for at most {}", rows_k,
                               problem.capacity_k));
  }
  for (size_t i = 0; i < tiles.size(); ++i) {
    const PlacedTile& t = tiles[i];
    const int64_t nq = t.tile.q.size();
    const int64_t nk = t.tile.k.size();
    if (t.q_row < 0 || nq > rows_q || t.q_row > rows_q - nq) {
      return invalid(
          fmt::format("tile {} has query rows [{}, {}) of {}", i, t.q_row, t.q_row + nq, rows_q));
    }
    if (nk > problem.capacity_k) {
      return invalid(fmt::format("tile {} has {} keys, the plan was prepared for at most {}", i, nk,
                                 problem.capacity_k));
    }
    if (t.k_row < 0 || nk > rows_k || t.k_row > rows_k - nk) {
      return invalid(
          fmt::format("tile {} has key rows [{}, {}) of {}", i, t.k_row, t.k_row + nk, rows_k));
    }
  }
  return {};
}

/// Every tile's sequence has a length on both sides.
Status fits_lengths(const TileProblem& problem, const ActualLengths& lengths,
                    std::span<const PlacedTile> tiles) {
  if (!problem.features.device_lengths) {
    if (lengths.q.empty() && lengths.k.empty()) return {};
    return invalid("lengths are given, the plan was prepared without: leave them out");
  }
  const auto known = static_cast<int64_t>(std::min(lengths.q.size(), lengths.k.size()));
  for (size_t i = 0; i < tiles.size(); ++i) {
    const int64_t sequence = tiles[i].tile.sequence;
    if (sequence >= 0 && sequence < known) continue;
    return invalid(
        fmt::format("tile {} is of sequence {}, lengths are given of {}", i, sequence, known));
  }
  return {};
}

Status fits_direction(const TileProblem& problem, Direction direction) {
  if (problem.direction == direction) return {};
  return invalid(fmt::format("the plan was prepared for {}, not for {}", name(problem.direction),
                             name(direction)));
}

std::optional<Decline> refused_dims(const TileProblem& p) {
  const auto outside = [](int64_t dim) { return dim < 1 || dim > kMaxDim; };
  if (outside(p.dim_qk)) {
    return Decline{DeclineCode::kHeadDim, fmt::format("dim {} not in 1..{}", p.dim_qk, kMaxDim)};
  }
  if (outside(p.dim_v)) {
    return Decline{DeclineCode::kHeadDim, fmt::format("dim_v {} not in 1..{}", p.dim_v, kMaxDim)};
  }
  return std::nullopt;
}

std::optional<Decline> refused_heads(const TileProblem& p) {
  // Keeps every product of heads inside 64 bits.
  constexpr int64_t kMaxHeads = int64_t{1} << 30;
  const auto outside = [](int64_t heads) { return heads < 1 || heads > kMaxHeads; };
  if (outside(p.heads_q)) {
    return Decline{DeclineCode::kHeads, fmt::format("{} query heads not in 1..2^30", p.heads_q)};
  }
  if (outside(p.heads_kv)) {
    return Decline{DeclineCode::kHeads, fmt::format("{} key heads not in 1..2^30", p.heads_kv)};
  }
  if (outside(p.group)) {
    return Decline{DeclineCode::kHeads, fmt::format("group {} not in 1..2^30", p.group)};
  }
  if (p.group_offset < 0 || p.group_offset > kMaxHeads) {
    return Decline{DeclineCode::kHeads,
                   fmt::format("group_offset {} not in 0..2^30", p.group_offset)};
  }
  if (key_head(p, p.heads_q - 1) >= p.heads_kv) {
    return Decline{DeclineCode::kHeads,
                   fmt::format("query head {} needs key head {} of {}", p.heads_q - 1,
                               key_head(p, p.heads_q - 1), p.heads_kv)};
  }
  return std::nullopt;
}

std::optional<Decline> refused_features(const TileProblem& p) {
  if (p.features.fp8 != Fp8::kNone) {
    return Decline{DeclineCode::kFp8,
                   fmt::format("fp8={} is not offered; remove fp8", name(p.features.fp8))};
  }
  if (p.features.paged && p.direction == Direction::kBackward) {
    return Decline{DeclineCode::kPage,
                   "page: paged keys and values are forward only; backward needs them without "
                   "pages, or ask for forward alone (backward strategy none)"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Decline> refusal(const TileProblem& p) {
  if (auto decline = refused_dims(p)) return decline;
  if (auto decline = refused_heads(p)) return decline;
  if (auto decline = refused_features(p)) return decline;
  if (p.capacity_q < 0 || p.capacity_q > kMaxTokens) {
    return Decline{DeclineCode::kCapacity,
                   fmt::format("capacity of {} query rows not in 0..2^31", p.capacity_q)};
  }
  if (p.capacity_k < 0 || p.capacity_k > kMaxTokens) {
    return Decline{DeclineCode::kCapacity,
                   fmt::format("capacity of {} key rows not in 0..2^31", p.capacity_k)};
  }
  // Keeps every size in bytes, float64 copies included, inside 63 bits.
  const double elements = static_cast<double>(p.capacity_q + p.capacity_k) *
                          static_cast<double>(p.heads_q + p.heads_kv) *
                          static_cast<double>(2 * (p.dim_qk + p.dim_v));
  if (elements > 0x1p56) {
    return Decline{DeclineCode::kCapacity, fmt::format("{:.3g} elements exceed 2^56", elements)};
  }
  return std::nullopt;
}

Status preparable(const std::optional<Decline>& decline) {
  if (!decline) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} ({})", decline->detail, name(decline->code)), "provider"};
}

Status fits(const TileProblem& p, const ForwardTiles& t, Carries carries) {
  LONGSPAN_CHECK_OK(fits_direction(p, Direction::kForward));
  const int64_t rows_q = t.q.rows();
  const int64_t rows_k = t.k.rows();
  LONGSPAN_CHECK_OK(
      fits_inputs(p.dtype, {{"q", t.q, rows_q, p.heads_q, p.dim_qk},
                            {"k", t.k, rows_k, p.heads_kv, p.dim_qk, p.features.paged},
                            {"v", t.v, rows_k, p.heads_kv, p.dim_v, p.features.paged}}));
  LONGSPAN_CHECK_OK(fits_results(p, carries, {{"o", t.o, rows_q, p.heads_q, p.dim_v}}));
  LONGSPAN_CHECK_OK(fits_carries(p.dtype, carries, {{"lse", t.lse, rows_q, p.heads_q, 1}}));
  LONGSPAN_CHECK_OK(fits_rows(p, rows_q, t.k, t.tiles));
  LONGSPAN_CHECK_OK(fits_lengths(p, t.lengths, t.tiles));
  return fits_terms(p, t, carries);
}

Status fits(const TileProblem& p, const BackwardTiles& t, Carries carries) {
  LONGSPAN_CHECK_OK(fits_direction(p, Direction::kBackward));
  const int64_t rows_q = t.q.rows();
  const int64_t rows_k = t.k.rows();
  LONGSPAN_CHECK_OK(fits_inputs(p.dtype, {{"q", t.q, rows_q, p.heads_q, p.dim_qk},
                                          {"k", t.k, rows_k, p.heads_kv, p.dim_qk},
                                          {"v", t.v, rows_k, p.heads_kv, p.dim_v},
                                          {"dout", t.dout, rows_q, p.heads_q, p.dim_v}}));
  if (given(t.o)) {
    LONGSPAN_CHECK_OK(fits_inputs(p.dtype, {{"o", t.o, rows_q, p.heads_q, p.dim_v}}));
  }
  LONGSPAN_CHECK_OK(fits_carries(p.dtype, carries, {{"lse", t.lse, rows_q, p.heads_q, 1}}));
  if (given(t.delta) || !given(t.o) || !p.features.whole) {
    LONGSPAN_CHECK_OK(fits_carries(p.dtype, carries, {{"delta", t.delta, rows_q, p.heads_q, 1}}));
  }
  LONGSPAN_CHECK_OK(fits_results(p, carries,
                                 {{"dq", t.dq, rows_q, p.heads_q, p.dim_qk},
                                  {"dk", t.dk, rows_k, p.heads_kv, p.dim_qk},
                                  {"dv", t.dv, rows_k, p.heads_kv, p.dim_v}}));
  LONGSPAN_CHECK_OK(fits_rows(p, rows_q, t.k, t.tiles));
  LONGSPAN_CHECK_OK(fits_lengths(p, t.lengths, t.tiles));
  return fits_terms(p, t, carries);
}

Status fits(Workspace workspace, size_t needed) {
  if (needed == 0) return {};
  if (workspace.data == nullptr || workspace.bytes < needed) {
    return invalid(fmt::format("workspace of {} bytes, {} are needed", workspace.bytes, needed));
  }
  if (reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlignment != 0) {
    return invalid(fmt::format("workspace is not aligned to {} bytes", kWorkspaceAlignment));
  }
  return {};
}

Verdict Provider::consider_pulls(const TileProblem&, const Device&) const {
  return Decline{
      DeclineCode::kPull,
      fmt::format("{} computes keys and values that are there; hopper can pull them from "
                  "other ranks while it computes",
                  name())};
}

Result<std::shared_ptr<const Staged>> Plan::stage_pulled(std::span<const PlacedTile>,
                                                         std::span<const Pull>) const {
  return Error{ErrorCode::kUnsupported, "this plan pulls no keys: ask consider_pulls() first",
               "provider"};
}

}  // namespace longspan
