#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "providers/prepared/errors.h"
#include "providers/prepared/plan.h"
#include "providers/rows/entries.h"
#include "providers/rows/places.h"
#include "providers/rules.h"

namespace longspan::prepared {
namespace {

template <class Tiles>
Result<const StagedLaunches*> staged_launches(const Tiles& t) {
  const auto* const staged = dynamic_cast<const StagedLaunches*>(t.staged);
  if (staged == nullptr) {
    return invalid(
        fmt::format("{} tiles were not staged: pass what stage() made of them", t.tiles.size()));
  }
  if (std::ranges::equal(staged->tiles, t.tiles)) return staged;
  return invalid("the staged tiles are not those of the call: stage these");
}

/// Hidden pairs are scored -inf before the scale: 0 would make NaN. Engines take no negative ones,
/// for which q is negated.
double scale_of(double scale) {
  constexpr double kLeast = 1e-30;
  return std::max(std::abs(scale), kLeast);
}

rows::Blank blank_of(const ForwardTiles& t, const rows::EntryList& list) {
  return {.list = list, .queries = {t.o, t.lse}};
}
rows::Blank blank_of(const BackwardTiles& t, const rows::EntryList& list) {
  return {.list = list, .queries = {t.dq}, .keys = {t.dk, t.dv}};
}

}  // namespace

Rows PreparedPlan::rows_of(Name name) const {
  const bool keys = name == Name::kK || name == Name::kV || name == Name::kDk || name == Name::kDv;
  const bool values =
      name == Name::kV || name == Name::kO || name == Name::kDout || name == Name::kDv;
  return {.keys = keys,
          .heads = keys ? rows::key_heads(problem_) : problem_.heads_q,
          .dim = values ? problem_.dim_v : problem_.dim_qk};
}

void PreparedPlan::place(Run& run, Name name, const TensorView& view, bool allowed,
                         std::byte* workspace) const {
  const Launch& launch = run.staged->launch;
  const Rows rows = rows_of(name);
  if (allowed) {
    if (const std::optional<Operand> direct = in_place(view, launch, rows)) {
      run.values[name] = *direct;
      return;
    }
  }
  run.scratch |= bit(name);
  run.values[name] =
      in_scratch(workspace + scratch_[name], element_of(problem_.dtype), launch, rows);
}

/// Partial results of a forward are merged from scratch memory. A build that declares rows may
/// write all of them: only a launch of as many has it write to the caller's.
void PreparedPlan::place_statistics(Run& run, const TensorView& lse, std::byte* workspace) const {
  const Launch& launch = run.staged->launch;
  const bool backward = problem_.direction == Direction::kBackward;
  const bool all_rows = launch.kernel->manifest().serves.tokens_q <= launch.sq();
  if (backward || (problem_.features.whole && all_rows)) {
    if (const std::optional<Operand> direct = statistics_in_place(lse, launch)) {
      run.values[Name::kLse] = *direct;
      return;
    }
  }
  run.scratch |= bit(Name::kLse);
  run.values[Name::kLse] =
      statistics_in_scratch(workspace + scratch_[Name::kLse], launch, problem_.heads_q);
}

/// One behind the other, those first that are cleared, so that one fill clears them.
Status PreparedPlan::place_buffers(Run& run, std::byte* workspace) const {
  const Launch& launch = run.staged->launch;
  const Manifest& m = launch.kernel->manifest();
  std::byte* const first = workspace + scratch_.buffers;
  rows::Places places;
  const auto take = [&](bool cleared) {
    for (const Buffer& buffer : m.buffers) {
      if (buffer.cleared != cleared) continue;
      Operand operand = buffer_operand(buffer, m, problem_, launch);
      operand.data = first + places.take(static_cast<int64_t>(bytes_of(operand)));
      run.values[buffer.name] = operand;
    }
  };
  take(true);
  const size_t cleared = places.end();
  take(false);
  if (cleared == 0) return {};
  return cuda::fill_on_device(first, 0, cleared, run.values.stream);
}

template <class Tiles>
Run PreparedPlan::begin(const StagedLaunch& staged, const Tiles& t, std::byte* workspace) const {
  const Launch& launch = staged.launch;
  Run run{.staged = &staged};
  Values& v = run.values;
  v.scale = scale_of(t.scale);
  v.left = launch.sight.left;
  v.right = launch.sight.right;
  v.sizes = {launch.batch(), problem_.heads_q, rows::key_heads(problem_),
             launch.sq(),    launch.sk(),      0};
  v.tokens_q = launch.kernel->manifest().serves.tokens_q;
  v.stream = t.stream;
  v.ordinal = ordinal_;
  v[Name::kCumulativeQ] = staged.cumulative_q;
  v[Name::kCumulativeK] = staged.cumulative_k;
  v[Name::kLengthsQ] = staged.lengths_q;
  v[Name::kLengthsK] = staged.lengths_k;
  place(run, Name::kQ, t.q, t.scale >= 0, workspace);
  place(run, Name::kK, t.k, true, workspace);
  place(run, Name::kV, t.v, true, workspace);
  place_statistics(run, t.lse, workspace);
  return run;
}

Status PreparedPlan::pack_input(const Run& run, Name name, const TensorView& view,
                                bool negated) const {
  if (!run.in_scratch(name)) return {};
  const Rows rows = rows_of(name);
  return rows::pack({.list = run.staged->list,
                     .from = view,
                     .heads = rows.heads,
                     .keys = rows.keys,
                     .negated = negated,
                     .to = run.values[name].data},
                    run.values.stream);
}

Status PreparedPlan::deliver_statistics(const ForwardTiles& t, const Run& run) const {
  if (!run.in_scratch(Name::kLse)) return {};
  auto* const packed = static_cast<float*>(run.values[Name::kLse].data);
  if (problem_.features.whole) {
    return rows::unpack_statistics({.list = run.staged->list, .lse = t.lse, .packed = packed},
                                   t.stream);
  }
  return rows::merge({.list = run.staged->list,
                      .o = t.o,
                      .lse = t.lse,
                      .part = run.values[Name::kO].data,
                      .stats = packed,
                      .dtype = problem_.dtype},
                     t.stream);
}

Status PreparedPlan::attend(const ForwardTiles& t, Run& run, std::byte* workspace) const {
  const bool whole = problem_.features.whole;
  place(run, Name::kO, t.o, whole, workspace);
  LONGSPAN_CHECK_OK(place_buffers(run, workspace));
  LONGSPAN_CHECK_OK(pack_input(run, Name::kQ, t.q, t.scale < 0));
  LONGSPAN_CHECK_OK(pack_input(run, Name::kK, t.k, false));
  LONGSPAN_CHECK_OK(pack_input(run, Name::kV, t.v, false));
  LONGSPAN_CHECK_OK(run.staged->launch.kernel->run(run.values));
  LONGSPAN_CHECK_OK(deliver_statistics(t, run));
  if (!whole || !run.in_scratch(Name::kO)) return {};
  rows::Delivery delivery{.list = run.staged->list, .count = 1, .dtype = problem_.dtype};
  delivery.results[0] = {.packed = run.values[Name::kO].data, .to = t.o, .heads = problem_.heads_q};
  return rows::deliver(delivery, t.stream);
}

/// O, dout and statistics. Without the caller's O, one is made whose products with dout are delta.
Status PreparedPlan::prepare_backward(const BackwardTiles& t, const Run& run) const {
  const StagedLaunch& staged = *run.staged;
  if (run.in_scratch(Name::kLse)) {
    auto* const packed = static_cast<float*>(run.values[Name::kLse].data);
    LONGSPAN_CHECK_OK(
        rows::pack_statistics({.list = staged.list, .lse = t.lse, .packed = packed}, t.stream));
  }
  if (t.o.rows() > 0) {
    LONGSPAN_CHECK_OK(pack_input(run, Name::kO, t.o, false));
    return pack_input(run, Name::kDout, t.dout, false);
  }
  return rows::make_backward_rows(
      {.list = staged.list,
       .dout = t.dout,
       .delta = t.delta,
       .packed_dout = run.in_scratch(Name::kDout) ? run.values[Name::kDout].data : nullptr,
       .o = run.values[Name::kO].data},
      t.stream);
}

Status PreparedPlan::deliver_gradients(const BackwardTiles& t, const Run& run) const {
  const bool whole = problem_.features.whole;
  const float factor = t.scale < 0 ? -1.0f : 1.0f;
  rows::Delivery delivery{.list = run.staged->list, .dtype = problem_.dtype};
  const auto add = [&](Name name, const TensorView& view, bool adds, float times) {
    if (!run.in_scratch(name)) return;
    const Rows rows = rows_of(name);
    delivery.results[static_cast<size_t>(delivery.count++)] = {.packed = run.values[name].data,
                                                               .to = view,
                                                               .heads = rows.heads,
                                                               .keys = rows.keys,
                                                               .adds = adds,
                                                               .factor = times};
  };
  add(Name::kDq, t.dq, !whole, factor);
  add(Name::kDk, t.dk, !whole || run.staged->adds_keys, 1);
  add(Name::kDv, t.dv, !whole || run.staged->adds_keys, 1);
  if (delivery.count == 0) return {};
  return rows::deliver(delivery, t.stream);
}

Status PreparedPlan::attend(const BackwardTiles& t, Run& run, std::byte* workspace) const {
  const bool whole = problem_.features.whole;
  const bool adds_keys = run.staged->adds_keys;
  place(run, Name::kO, t.o, true, workspace);
  place(run, Name::kDout, t.dout, true, workspace);
  place(run, Name::kDq, t.dq, whole && t.scale >= 0, workspace);
  place(run, Name::kDk, t.dk, whole && !adds_keys, workspace);
  place(run, Name::kDv, t.dv, whole && !adds_keys, workspace);
  LONGSPAN_CHECK_OK(place_buffers(run, workspace));
  LONGSPAN_CHECK_OK(pack_input(run, Name::kQ, t.q, t.scale < 0));
  LONGSPAN_CHECK_OK(pack_input(run, Name::kK, t.k, false));
  LONGSPAN_CHECK_OK(pack_input(run, Name::kV, t.v, false));
  LONGSPAN_CHECK_OK(prepare_backward(t, run));
  LONGSPAN_CHECK_OK(run.staged->launch.kernel->run(run.values));
  return deliver_gradients(t, run);
}

template <class Tiles>
Status PreparedPlan::attend_all(const Tiles& t, Workspace scratch) const {
  LONGSPAN_CHECK_OK(fits(problem_, t, Carries::kAccumulator));
  if (t.tiles.empty()) return {};
  LONGSPAN_CHECK_OK(fits(scratch, workspace_bytes()));
  LONGSPAN_TRY(const StagedLaunches* const staged, staged_launches(t));
  const cuda::DeviceScope scope(ordinal_);
  auto* const workspace = static_cast<std::byte*>(scratch.data);
  if (staged->blanks.count > 0) {
    LONGSPAN_CHECK_OK(rows::blank(blank_of(t, staged->blanks), t.stream));
  }
  for (const StagedLaunch& launch : staged->launches) {
    Run run = begin(launch, t, workspace);
    LONGSPAN_CHECK_OK(attend(t, run, workspace));
  }
  return {};
}

Status PreparedPlan::forward(const ForwardTiles& t, Workspace workspace) const {
  return attend_all(t, workspace);
}

Status PreparedPlan::backward(const BackwardTiles& t, Workspace workspace) const {
  return attend_all(t, workspace);
}

}  // namespace longspan::prepared
