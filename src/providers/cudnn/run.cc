#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "providers/cudnn/graph_cache.h"
#include "providers/cudnn/layout.h"
#include "providers/cudnn/plan.h"
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

/// Where each tensor of a ragged graph finds its offsets.
void point_to_offsets(Launch& launch, int64_t* tables) {
  const auto point = [&](Slot slot, OffsetTable table) {
    launch.arguments[slot] = tables + table * offset_table_size(launch.key.batch);
  };
  point(Slot::kOffsetsQ, launch.packs_q ? kPackedQ : kViewQ);
  point(Slot::kOffsetsK, launch.packs_k ? kPackedK : kViewK);
  point(Slot::kOffsetsV, launch.packs_v ? kPackedV : kViewV);
  point(Slot::kOffsetsStats, kPackedStats);
  point(Slot::kOffsetsO, kPackedO);
  point(Slot::kOffsetsDout, kPackedO);
  point(Slot::kOffsetsDq, kPackedQ);
  point(Slot::kOffsetsDk, kPackedK);
  point(Slot::kOffsetsDv, kPackedV);
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
  LONGSPAN_CHECK_OK(fits_budget(problem_, *graphs[0], key));
  return std::move(graphs[0]);
}

template <class Tiles>
Result<Launch> CudnnPlan::make_launch(const StagedGroup& staged, const Tiles& t,
                                      std::byte* workspace) const {
  const Group& group = staged.group;
  const int64_t heads_kv = key_heads(problem_);
  Launch launch{.key = staged.key};
  const auto use = [&](Slot slot, const TensorView& view, bool packs, const Layout& layout,
                       size_t place) -> Strides {
    const bool keys = slot != Slot::kQ;
    auto* const data = static_cast<std::byte*>(view.data);
    launch.arguments[slot] =
        packs ? workspace + place : data + first_element(view, group, keys) * size_of(view.dtype);
    if (!packs) return layout.strides;
    return packed_entries(group, keys, keys ? heads_kv : problem_.heads_q, view.dim);
  };
  const Layout q = layout_of(t.q, group, false, problem_.heads_q);
  const Layout k = layout_of(t.k, group, true, heads_kv);
  const Layout v = layout_of(t.v, group, true, heads_kv);
  launch.packs_q = !q.direct || t.scale < 0;
  launch.packs_k = !k.direct;
  launch.packs_v = !v.direct;
  launch.key.q = use(Slot::kQ, t.q, launch.packs_q, q, scratch_.q);
  launch.key.k = use(Slot::kK, t.k, launch.packs_k, k, scratch_.k);
  launch.key.v = use(Slot::kV, t.v, launch.packs_v, v, scratch_.v);
  LONGSPAN_TRY(launch.graph, graph_of(staged, launch.key, t.stream));
  launch.list = {.entries = staged.entries,
                 .count = static_cast<int64_t>(group.entries.size()),
                 .rows_q = group.rows_q(),
                 .rows_k = group.rows_k(),
                 .row_major = group.ragged};
  launch.arguments[Slot::kLengthsQ] = const_cast<int32_t*>(staged.lengths_q);
  launch.arguments[Slot::kLengthsK] = const_cast<int32_t*>(staged.lengths_k);
  point_to_offsets(launch, reinterpret_cast<int64_t*>(workspace + scratch_.offsets));
  return launch;
}

template <class Tiles>
Status CudnnPlan::prepare_inputs(const Launch& launch, const Tiles& t, std::byte* workspace) const {
  if (launch.key.ragged) {
    LONGSPAN_CHECK_OK(
        write_offsets({.list = launch.list,
                       .batch = launch.key.batch,
                       .q = t.q,
                       .k = t.k,
                       .v = t.v,
                       .heads_q = problem_.heads_q,
                       .heads_kv = launch.key.heads_kv,
                       .dim_qk = problem_.dim_qk,
                       .dim_v = problem_.dim_v,
                       .tables = reinterpret_cast<int64_t*>(workspace + scratch_.offsets)},
                      t.stream));
  }
  if (launch.packs_q) {
    LONGSPAN_CHECK_OK(pack({.list = launch.list,
                            .from = t.q,
                            .heads = problem_.heads_q,
                            .negated = t.scale < 0,
                            .to = workspace + scratch_.q},
                           t.stream));
  }
  if (launch.packs_k) {
    LONGSPAN_CHECK_OK(pack({.list = launch.list,
                            .from = t.k,
                            .heads = launch.key.heads_kv,
                            .keys = true,
                            .to = workspace + scratch_.k},
                           t.stream));
  }
  if (!launch.packs_v) return {};
  return pack({.list = launch.list,
               .from = t.v,
               .heads = launch.key.heads_kv,
               .keys = true,
               .to = workspace + scratch_.v},
              t.stream);
}

Status CudnnPlan::attend(const ForwardTiles& t, Launch& launch, std::byte* workspace) const {
  auto scale = static_cast<float>(std::abs(t.scale));
  auto* const stats = reinterpret_cast<float*>(workspace + scratch_.stats);
  launch.arguments[Slot::kO] = workspace + scratch_.o;
  launch.arguments[Slot::kStats] = stats;
  launch.arguments[Slot::kScale] = &scale;
  LONGSPAN_CHECK_OK(launch.graph->execute(launch.arguments, workspace + scratch_.cudnn, t.stream));
  return merge({.list = launch.list,
                .o = t.o,
                .lse = t.lse,
                .part = workspace + scratch_.o,
                .stats = stats,
                .dtype = problem_.dtype},
               t.stream);
}

Status CudnnPlan::attend(const BackwardTiles& t, Launch& launch, std::byte* workspace) const {
  auto scale = static_cast<float>(std::abs(t.scale));
  auto* const stats = reinterpret_cast<float*>(workspace + scratch_.stats);
  LONGSPAN_CHECK_OK(make_backward_rows({.list = launch.list,
                                        .dout = t.dout,
                                        .lse = t.lse,
                                        .delta = t.delta,
                                        .packed_dout = workspace + scratch_.dout,
                                        .o = workspace + scratch_.o,
                                        .stats = stats},
                                       t.stream));
  launch.arguments[Slot::kO] = workspace + scratch_.o;
  launch.arguments[Slot::kStats] = stats;
  launch.arguments[Slot::kDout] = workspace + scratch_.dout;
  launch.arguments[Slot::kDq] = workspace + scratch_.dq;
  launch.arguments[Slot::kDk] = workspace + scratch_.dk;
  launch.arguments[Slot::kDv] = workspace + scratch_.dv;
  launch.arguments[Slot::kScale] = &scale;
  LONGSPAN_CHECK_OK(launch.graph->execute(launch.arguments, workspace + scratch_.cudnn, t.stream));
  return add_gradients({.list = launch.list,
                        .dq = t.dq,
                        .dk = t.dk,
                        .dv = t.dv,
                        .part_dq = workspace + scratch_.dq,
                        .part_dk = workspace + scratch_.dk,
                        .part_dv = workspace + scratch_.dv,
                        .heads_kv = launch.key.heads_kv,
                        .negated_dq = t.scale < 0,
                        .dtype = problem_.dtype},
                       t.stream);
}

template <class Tiles>
Status CudnnPlan::attend_all(const Tiles& t, Workspace scratch) const {
  LONGSPAN_CHECK_OK(fits(problem_, t, Carries::kAccumulator));
  if (t.tiles.empty()) return {};
  LONGSPAN_CHECK_OK(fits(scratch, workspace_bytes()));
  LONGSPAN_TRY(const StagedGroups* const staged, staged_groups(t));
  const cuda::DeviceScope scope(ordinal_);
  auto* const workspace = static_cast<std::byte*>(scratch.data);
  for (const StagedGroup& group : staged->groups) {
    LONGSPAN_TRY(Launch launch, make_launch(group, t, workspace));
    LONGSPAN_CHECK_OK(prepare_inputs(launch, t, workspace));
    LONGSPAN_CHECK_OK(attend(t, launch, workspace));
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
