// Calls that bring keys and values of other ranks themselves.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "providers/hopper/maps.h"
#include "providers/hopper/plan.h"

namespace longspan::hopper {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "hopper"};
}

Status fits_pulls(const StagedPulls& staged, const PulledKeys& keys) {
  const size_t borrowed = keys.loans.borrowed.size();
  if (borrowed != 2 * static_cast<size_t>(staged.lenders)) {
    return invalid(fmt::format("{} loans for K and V of {} lenders: pass two of each", borrowed,
                               staged.lenders));
  }
  if (keys.loans.lent.size() > 2 * kMostLenders) {
    return invalid(fmt::format("{} loans given > {}: lend K and V to {} ranks at most",
                               keys.loans.lent.size(), 2 * kMostLenders, kMostLenders));
  }
  for (const TensorView* view : {&keys.k, &keys.v}) {
    const bool packed = even(*view) && view->stride_seq == view->heads * view->stride_head &&
                        (view->heads <= 1 || view->stride_head == view->dim);
    if (view->rows() == 0 || (packed && mappable(*view))) continue;
    return invalid(
        fmt::format("own {} of {} rows has gaps, or is not aligned to 16 bytes: pass a packed copy",
                    view == &keys.k ? "K" : "V", view->rows()));
  }
  return {};
}

void set_loans(const StagedPulls& staged, const PulledKeys& keys, PullParameters& p) {
  const auto& [borrowed, lent, counters] = keys.loans;
  p.loan_count = static_cast<int32_t>(borrowed.size());
  std::copy(borrowed.begin(), borrowed.end(), p.loans);
  p.lent_count = static_cast<int32_t>(lent.size());
  std::copy(lent.begin(), lent.end(), p.lent);
  if (counters != nullptr) p.counter = counters;
  p.finished = p.counter + 1;
  p.through = p.counter + 2;
  p.there = p.counter + 3;
  p.arrived = p.counter + 4;
  p.loans[2 * staged.lenders] = {.data = keys.k.data};
  p.loans[2 * staged.lenders + 1] = {.data = keys.v.data};
}

}  // namespace

Status HopperPlan::forward_pulling(const StagedWork& staged, const ForwardTiles& t,
                                   std::byte* workspace) const {
  const auto& pulls = dynamic_cast<const StagedPulls&>(staged);
  const PulledKeys& keys = *t.pulled;
  LONGSPAN_CHECK_OK(fits_pulls(pulls, keys));
  PullParameters p;
  LONGSPAN_TRY(static_cast<Parameters&>(p), parameters_of(staged, t, workspace));
  p.own_k = p.k;
  p.own_v = p.v;
  if (keys.k.rows() > 0) {
    LONGSPAN_TRY(p.own_k, map_rows(keys.k, staged.kernel->k));
    LONGSPAN_TRY(p.own_v, map_rows(keys.v, staged.kernel->v));
  }
  set_loans(pulls, keys, p);
  p.starts = static_cast<const Start*>(pulls.starts.data());
  p.places = static_cast<const int32_t*>(pulls.places.data());
  p.pull_units = static_cast<const PullUnit*>(pulls.units.data());
  std::copy(pulls.units_of_piece.begin(), pulls.units_of_piece.end(), p.units_of_piece);
  p.pull_count = pulls.unit_count;
  p.piece_log2 = pulls.piece_log2;
  p.gathered[0] = static_cast<char*>(t.k.data);
  p.gathered[1] = static_cast<char*>(t.v.data);
  if (keys.loans.counters == nullptr) {
    LONGSPAN_CHECK_OK(cuda::fill_on_device(p.counter, 0, kCounters * sizeof(uint32_t), t.stream));
  }
  return launch(staged, p, t.stream);
}

}  // namespace longspan::hopper
