#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "providers/cudnn/bias.h"
#include "providers/cudnn/graph_cache.h"
#include "providers/cudnn/layout.h"
#include "providers/cudnn/plan.h"
#include "providers/rows/kernels.h"
#include "providers/rules.h"

namespace longspan::cudnn {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "cudnn"};
}

template <class Tiles>
Result<const StagedGroups*> staged_groups(const Tiles& t) {
  const auto* const staged = dynamic_cast<const StagedGroups*>(t.staged);
  if (staged == nullptr) {
    const Tile& tile = t.tiles[0].tile;
    return invalid(
        fmt::format("{} tiles were not staged, the first of {} x {} tokens: pass what "
                    "stage() made of them",
                    t.tiles.size(), tile.q.size(), tile.k.size()));
  }
  if (std::ranges::equal(staged->tiles, t.tiles)) return staged;
  return invalid("the staged tiles are not those of the call: stage these");
}

/// cuDNN scores hidden pairs -inf before it scales, and flushes subnormal scales: 0 would make NaN.
float scale_of(double scale) {
  constexpr float kLeast = 1e-30f;
  return std::max(static_cast<float>(std::abs(scale)), kLeast);
}

Status write_offsets(const Launch& launch, Stream stream) {
  OffsetTables t = {.list = launch.list,
                    .batch = launch.key.batch,
                    .tables = static_cast<int64_t*>(launch.arguments[offsets_of(Slot::kQ)]),
                    .cutting = launch.cutting};
  for (size_t i = 0; i < kTensors; ++i) {
    const Operand& o = launch.operands.tensors[i];
    t.tensors[i] = {.width = o.heads * o.dim, .keys = o.keys};
    if (!o.in_place) continue;
    t.tensors[i].view = o.view;
    t.tensors[i].first = launch.first[i];
  }
  return write_offsets(t, stream);
}

rows::Blank blank_of(const ForwardTiles& t, const EntryList& list) {
  return {.list = list, .queries = {t.o, t.lse}};
}
rows::Blank blank_of(const BackwardTiles& t, const EntryList& list) {
  return {.list = list, .queries = {t.dq}, .keys = {t.dk, t.dv}};
}

}  // namespace

Result<std::shared_ptr<const Graph>> CudnnPlan::graph_of(const StagedGroup& staged,
                                                         const GraphKey& key, Stream stream) const {
  if (key == staged.key) return staged.graph;
  if (auto known = known_graph(key)) return known;
  LONGSPAN_TRY(const bool capturing, cuda::capturing(stream));
  if (capturing) {
    return invalid(
        fmt::format("no graph yet for {}: run once with these strides before capture", text(key)));
  }
  LONGSPAN_TRY(auto graphs, make_graphs({&key, 1}));
  LONGSPAN_CHECK_OK(fits_budget(slice_, *graphs[0], key));
  return std::move(graphs[0]);
}

template <class Tiles>
Result<Launch> CudnnPlan::make_launch(const StagedGroup& staged, const Tiles& t,
                                      std::byte* workspace) const {
  Launch launch{.key = staged.key,
                .list = staged.list,
                .operands = operands_of(slice_, staged.group, t),
                .adds_dq = staged.group.adds_dq,
                .entry = staged.group.entries[0]};
  auto* const tables = reinterpret_cast<int64_t*>(workspace + scratch_.offsets);
  for (size_t i = 0; i < kTensors; ++i) {
    const Operand& o = launch.operands.tensors[i];
    const auto slot = static_cast<Slot>(i);
    launch.key.strides[slot] = o.strides;
    launch.arguments[slot] = workspace + scratch_.tensors[i];
    launch.arguments[offsets_of(slot)] =
        tables + static_cast<int64_t>(i) * offset_table_size(launch.key.batch);
    if (!o.in_place) continue;
    launch.first[i] = first_element(o.view, staged.group, o.keys);
    launch.arguments[slot] =
        static_cast<std::byte*>(o.view.data) + launch.first[i] * size_of(o.view.dtype);
  }
  launch.arguments[Slot::kBias] = workspace + scratch_.bias;
  launch.arguments[Slot::kDbias] = workspace + scratch_.dbias;
  launch.arguments[Slot::kLengthsQ] = const_cast<int32_t*>(staged.lengths_q);
  launch.arguments[Slot::kLengthsK] = const_cast<int32_t*>(staged.lengths_k);
  LONGSPAN_TRY(launch.graph, graph_of(staged, launch.key, t.stream));
  launch.cutting = cutting_of(staged, t.lengths, workspace);
  if (launch.key.ragged) LONGSPAN_CHECK_OK(write_offsets(launch, t.stream));
  if (launch.cutting.tokens == nullptr) return launch;
  launch.list.entries = launch.cutting.entries;
  launch.arguments[Slot::kLengthsQ] = launch.cutting.lengths_q;
  launch.arguments[Slot::kLengthsK] = launch.cutting.lengths_k;
  return launch;
}

Cutting CudnnPlan::cutting_of(const StagedGroup& staged, const ActualLengths& lengths,
                              std::byte* workspace) const {
  auto* const both = reinterpret_cast<int32_t*>(workspace + scratch_.cut_lengths);
  return {.tokens = staged.tokens,
          .lengths = lengths,
          .entries = reinterpret_cast<DeviceEntry*>(workspace + scratch_.cut_entries),
          .lengths_q = both,
          .lengths_k = both + kMostEntries};
}

Status CudnnPlan::pack_inputs(const Launch& launch, std::span<const Slot> slots, bool negated_q,
                              Stream stream) const {
  for (const Slot slot : slots) {
    const Operand& o = launch.operands[slot];
    if (o.in_place) continue;
    LONGSPAN_CHECK_OK(rows::pack({.list = launch.list,
                                  .from = o.view,
                                  .heads = o.heads,
                                  .keys = o.keys,
                                  .negated = negated_q && slot == Slot::kQ,
                                  .to = launch.arguments[slot]},
                                 stream));
  }
  return {};
}

/// Those of `slots` that are not in place.
Status CudnnPlan::deliver_results(const Launch& launch, std::span<const Slot> slots,
                                  bool negated_dq, Stream stream) const {
  rows::Delivery delivery{.list = launch.list, .dtype = problem_.dtype};
  for (const Slot slot : slots) {
    const Operand& o = launch.operands[slot];
    if (o.in_place) continue;
    const bool dq = slot == Slot::kDq;
    delivery.results[static_cast<size_t>(delivery.count++)] = {
        .packed = launch.arguments[slot],
        .to = o.view,
        .heads = o.heads,
        .keys = o.keys,
        .adds = !problem_.features.whole || (dq && launch.adds_dq),
        .factor = dq && negated_dq ? -1.0f : 1.0f};
  }
  return rows::deliver(delivery, stream);
}

Status CudnnPlan::pack_bias(const ScoreTerms& terms, const Launch& launch, Stream stream) const {
  if (launch.key.bias.heads == 0) return {};
  return cudnn::pack_bias({.entry = launch.entry,
                           .bias = terms.bias,
                           .head_begin = terms.head_begin,
                           .shape = launch.key.bias,
                           .keys = launch.key.skv,
                           .to = launch.arguments[Slot::kBias]},
                          stream);
}

Status CudnnPlan::deliver_dbias(const BackwardTiles& t, const Launch& launch) const {
  if (launch.key.bias.heads == 0) return {};
  return add_bias_gradient({.entry = launch.entry,
                            .dbias = t.dbias,
                            .head_begin = t.terms.head_begin,
                            .dtype = problem_.dtype,
                            .heads = launch.key.heads_q,
                            .rows = launch.key.sq,
                            .keys = launch.key.skv,
                            .packed = launch.arguments[Slot::kDbias]},
                           t.stream);
}

Status CudnnPlan::attend(const ForwardTiles& t, Launch& launch, void* workspace) const {
  LONGSPAN_CHECK_OK(pack_inputs(launch, {{Slot::kQ, Slot::kK, Slot::kV}}, t.scale < 0, t.stream));
  LONGSPAN_CHECK_OK(pack_bias(t.terms, launch, t.stream));
  float scale = scale_of(t.scale);
  launch.arguments[Slot::kScale] = &scale;
  LONGSPAN_CHECK_OK(launch.graph->execute(launch.arguments, workspace, t.stream));
  auto* const stats = static_cast<float*>(launch.arguments[Slot::kStats]);
  if (!problem_.features.whole) {
    return rows::merge({.list = launch.list,
                        .o = t.o,
                        .lse = t.lse,
                        .part = launch.arguments[Slot::kO],
                        .stats = stats,
                        .dtype = problem_.dtype},
                       t.stream);
  }
  LONGSPAN_CHECK_OK(deliver_results(launch, {{Slot::kO}}, false, t.stream));
  if (launch.operands[Slot::kStats].in_place) return {};
  return rows::unpack_statistics({.list = launch.list, .lse = t.lse, .packed = stats}, t.stream);
}

/// O, dout and statistics.
Status CudnnPlan::prepare_backward(const BackwardTiles& t, const Launch& launch) const {
  if (!launch.operands[Slot::kStats].in_place) {
    auto* const stats = static_cast<float*>(launch.arguments[Slot::kStats]);
    LONGSPAN_CHECK_OK(
        rows::pack_statistics({.list = launch.list, .lse = t.lse, .packed = stats}, t.stream));
  }
  if (t.o.rows() > 0) return pack_inputs(launch, {{Slot::kO, Slot::kDout}}, false, t.stream);
  const bool in_place = launch.operands[Slot::kDout].in_place;
  return rows::make_backward_rows(
      {.list = launch.list,
       .dout = t.dout,
       .delta = t.delta,
       .packed_dout = in_place ? nullptr : launch.arguments[Slot::kDout],
       .o = launch.arguments[Slot::kO]},
      t.stream);
}

Status CudnnPlan::attend(const BackwardTiles& t, Launch& launch, void* workspace) const {
  LONGSPAN_CHECK_OK(pack_inputs(launch, {{Slot::kQ, Slot::kK, Slot::kV}}, t.scale < 0, t.stream));
  LONGSPAN_CHECK_OK(pack_bias(t.terms, launch, t.stream));
  LONGSPAN_CHECK_OK(prepare_backward(t, launch));
  float scale = scale_of(t.scale);
  launch.arguments[Slot::kScale] = &scale;
  LONGSPAN_CHECK_OK(launch.graph->execute(launch.arguments, workspace, t.stream));
  LONGSPAN_CHECK_OK(deliver_dbias(t, launch));
  return deliver_results(launch, {{Slot::kDq, Slot::kDk, Slot::kDv}}, t.scale < 0, t.stream);
}

template <class Tiles>
Status CudnnPlan::attend_slice(const StagedGroups& staged, const Tiles& t,
                               std::byte* workspace) const {
  for (const StagedGroup& group : staged.groups) {
    LONGSPAN_TRY(Launch launch, make_launch(group, t, workspace));
    LONGSPAN_CHECK_OK(attend(t, launch, workspace + scratch_.cudnn));
  }
  return {};
}

template <class Tiles>
Status CudnnPlan::attend_all(const Tiles& t, Workspace scratch) const {
  LONGSPAN_CHECK_OK(fits(problem_, t, Carries::kAccumulator));
  if (t.tiles.empty()) return {};
  LONGSPAN_CHECK_OK(fits(scratch, workspace_bytes()));
  LONGSPAN_TRY(const StagedGroups* const staged, staged_groups(t));
  const cuda::DeviceScope scope(ordinal_);
  auto* const workspace = static_cast<std::byte*>(scratch.data);
  if (staged->blanks.count > 0)
    LONGSPAN_CHECK_OK(rows::blank(blank_of(t, staged->blanks), t.stream));
  if (slice_.heads_q == problem_.heads_q) return attend_slice(*staged, t, workspace);
  for (int64_t i = 0; i < problem_.heads_q / slice_.heads_q; ++i) {
    LONGSPAN_CHECK_OK(attend_slice(*staged, slice_of(t, slice_, i), workspace));
  }
  return {};
}

Status CudnnPlan::forward(const ForwardTiles& t, Workspace workspace) const {
  return attend_all(t, workspace);
}

Status CudnnPlan::backward(const BackwardTiles& t, Workspace workspace) const {
  return attend_all(t, workspace);
}

}  // namespace longspan::cudnn
