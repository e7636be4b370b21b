#include "longspan/routing_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "plan/measured_text.h"

namespace longspan {
namespace {

bool windowed(const Problem& p) { return p.window_left >= 0 || p.window_right >= 0 || p.chunk > 0; }

MaskClass mask_class(const Problem& p) {
  if (windowed(p)) return MaskClass::kWindow;
  return p.mask == MaskKind::kCausal ? MaskClass::kCausal : MaskClass::kFull;
}

bool is_packed(const Lengths& lengths) {
  const auto different = [&](const Sequence& s) {
    const Sequence& first = lengths.sequences.front();
    return s.q_length != first.q_length || s.k_length != first.k_length;
  };
  return std::ranges::any_of(lengths.sequences, different);
}

int64_t sequences_with_queries(const Lengths& lengths) {
  return std::ranges::count_if(lengths.sequences, [](const Sequence& s) { return s.q_length > 0; });
}

bool is_16bit(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

/// How far apart two lengths are, as a ratio of at least 1.
double distance(int64_t a, int64_t b) {
  const auto [least, most] = std::minmax(std::max<int64_t>(a, 1), std::max<int64_t>(b, 1));
  return static_cast<double>(most) / static_cast<double>(least);
}

/// Orders rows that may stand for a case: the best one is the least.
auto rank_of(const RoutingCase& row, const RoutingCase& wanted) {
  return std::tuple(row.dtype != wanted.dtype, row.dim + row.dim_v, row.dim,
                    distance(row.length, wanted.length), row.length);
}

bool may_stand_for(const RoutingCase& row, const RoutingCase& wanted) {
  if (row.device != wanted.device || row.direction != wanted.direction) return false;
  if (row.mask != wanted.mask || row.packed != wanted.packed) return false;
  if (row.deterministic != wanted.deterministic) return false;
  if (row.dtype != wanted.dtype && !(is_16bit(row.dtype) && is_16bit(wanted.dtype))) return false;
  return row.dim >= wanted.dim && row.dim_v >= wanted.dim_v;
}

}  // namespace

std::string_view name(MaskClass mask) {
  switch (mask) {
    case MaskClass::kFull: return "full";
    case MaskClass::kCausal: return "causal";
    case MaskClass::kWindow: return "window";
  }
  return "";
}

RoutingCase routing_case(const Problem& problem, Direction direction, const Device& device,
                         int64_t rows_q) {
  const int64_t sequences = sequences_with_queries(problem.lengths);
  return {.device = device.is_cuda()
                        ? fmt::format("cuda {}.{}", device.capability / 10, device.capability % 10)
                        : "cpu",
          .direction = direction,
          .dtype = problem.dtype,
          .dim = problem.dim_qk,
          .dim_v = problem.dim_v,
          .mask = mask_class(problem),
          .packed = is_packed(problem.lengths),
          .deterministic = problem.deterministic,
          .length = rows_q / std::max<int64_t>(sequences, 1)};
}

const RoutingRow* RoutingTable::find(const RoutingCase& wanted) const {
  const RoutingRow* best = nullptr;
  for (const RoutingRow& row : rows) {
    if (!may_stand_for(row.measured, wanted)) continue;
    if (best == nullptr || rank_of(row.measured, wanted) < rank_of(best->measured, wanted)) {
      best = &row;
    }
  }
  return best;
}

std::shared_ptr<const RoutingTable> measured_routing_table() {
  static const auto table =
      std::make_shared<const RoutingTable>(RoutingTable::from_json(kMeasuredText).value());
  return table;
}

}  // namespace longspan
