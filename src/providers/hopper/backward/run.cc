#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "providers/hopper/backward/delta.h"
#include "providers/hopper/backward/kernels.h"
#include "providers/hopper/backward/plan.h"
#include "providers/hopper/maps.h"
#include "providers/hopper/readable.h"
#include "providers/rules.h"

namespace longspan::hopper {

/// What both kernels of a call are launched with; chunks fill in their own.
struct BackwardPlan::Launch {
  ScoreParameters scores;
  GradientParameters gradients;
};

namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "hopper"};
}

Result<const StagedBackward*> staged_backward(const BackwardTiles& t) {
  const auto* const staged = dynamic_cast<const StagedBackward*>(t.staged);
  if (staged == nullptr) {
    return invalid(
        fmt::format("{} tiles were not staged: pass what stage() made of them", t.tiles.size()));
  }
  if (std::ranges::equal(staged->tiles, t.tiles)) return staged;
  return invalid(fmt::format("{} tiles, but other ones ({}) were staged: stage these",
                             t.tiles.size(), staged->tiles.size()));
}

/// Hidden scores are infinite before they are scaled, so the factor must not be 0.
float scale_log2_of(double scale) {
  constexpr float kLeast = 1e-30f;
  const auto factor = static_cast<float>(scale * std::numbers::log2e);
  return std::abs(factor) < kLeast ? kLeast : factor;
}

/// Steps of 64 columns; the kernel needs two at least, and reads zeros behind the last column.
int32_t steps_of(int64_t dim) {
  return static_cast<int32_t>(std::max<int64_t>((dim + 63) / 64, 2));
}

template <class T>
const T* list_at(const cuda::Memory& lists, size_t first) {
  return static_cast<const T*>(lists.data()) + first;
}

Status launch_kernel(const BackwardKernel& kernel, int blocks, void* parameters, Stream stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<size_t>(kernel.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  void* arguments[] = {parameters};
  return cuda::status(cudaLaunchKernelExC(&config, kernel.entry, arguments),
                      "launching a backward kernel of hopper");
}

}  // namespace

Status BackwardPlan::map_operands(const BackwardTiles& t, std::byte* workspace,
                                  Launch& launch) const {
  const auto read = [&](const TensorView& view, bool keys, size_t place) {
    return readable(view, t.tiles, keys, false, workspace + place, t.stream);
  };
  // Without rows nothing is seen, but something must be mapped.
  const bool queries = t.q.rows() > 0, keys = t.k.rows() > 0;
  LONGSPAN_TRY(const TensorView q,
               queries ? read(t.q, false, scratch_.q) : read(t.k, true, scratch_.k));
  LONGSPAN_TRY(const TensorView dout,
               queries ? read(t.dout, false, scratch_.dout) : read(t.v, true, scratch_.v));
  LONGSPAN_TRY(const TensorView k, keys ? read(t.k, true, scratch_.k) : Result<TensorView>(q));
  LONGSPAN_TRY(const TensorView v, keys ? read(t.v, true, scratch_.v) : Result<TensorView>(dout));
  ScoreParameters& s = launch.scores;
  LONGSPAN_TRY(s.q, map_rows(q, {kUnitQueries, 1}));
  LONGSPAN_TRY(s.dout, map_rows(dout, {kUnitQueries, 1}));
  LONGSPAN_TRY(s.k, map_rows(k, {kUnitKeys, 1}));
  LONGSPAN_TRY(s.v, map_rows(v, {kUnitKeys, 1}));
  const Box box = {kBlockSide, static_cast<int>(columns_ / 64)};
  Mapped* const operands = launch.gradients.operands;
  LONGSPAN_TRY(operands[static_cast<int>(Gradient::kDq)], map_rows(k, box));
  LONGSPAN_TRY(operands[static_cast<int>(Gradient::kDk)], map_rows(q, box));
  LONGSPAN_TRY(operands[static_cast<int>(Gradient::kDv)], map_rows(dout, box));
  return {};
}

void BackwardPlan::set_rows(const BackwardTiles& t, std::byte* workspace, Launch& launch) const {
  const auto rows_of = [&](const TensorView& view, size_t place, double scale) {
    const bool whole = problem_.features.whole;
    GradientRows rows{.scale = static_cast<float>(scale)};
    // NOTE: dQ's are laid out anew by each chunk.
    const TensorView sums =
        whole ? packed_view(workspace + place, DType::kF32, problem_.capacity_k, 1, view.dim)
              : view;
    rows.sums = row_view(sums);
    rows.wide_sums = aligned(sums, 8);
    if (!whole) return rows;
    rows.sums.seq = std::numeric_limits<int32_t>::max();
    rows.result = row_view(view);
    rows.wide_result = aligned(view, 16);
    return rows;
  };
  GradientRows* const rows = launch.gradients.rows;
  rows[static_cast<int>(Gradient::kDq)] = rows_of(t.dq, scratch_.sums_q, t.scale);
  rows[static_cast<int>(Gradient::kDk)] = rows_of(t.dk, scratch_.sums_k, t.scale);
  rows[static_cast<int>(Gradient::kDv)] = rows_of(t.dv, scratch_.sums_v, 1);
}

Status BackwardPlan::set_call(const BackwardTiles& t, std::byte* workspace, Launch& launch) const {
  LONGSPAN_CHECK_OK(map_operands(t, workspace, launch));
  set_rows(t, workspace, launch);
  TensorView delta = t.delta;
  if (delta.rows() == 0) {
    delta = packed_view(workspace + scratch_.delta, DType::kF32, t.q.rows(), problem_.heads_q, 1);
    LONGSPAN_CHECK_OK(make_delta(t.dout, t.o, delta, t.stream));
  }
  ScoreParameters& s = launch.scores;
  s.lse = row_view(t.lse);
  s.delta = row_view(delta);
  s.steps_qk = steps_of(problem_.dim_qk);
  s.steps_v = steps_of(problem_.dim_v);
  s.scale_log2 = scale_log2_of(t.scale);
  s.hidden = s.scale_log2 < 0 ? INFINITY : -INFINITY;
  s.chunk.p = reinterpret_cast<char*>(workspace + scratch_.p);
  s.chunk.ds = reinterpret_cast<char*>(workspace + scratch_.ds);
  s.chunk.group = static_cast<int32_t>(problem_.group);
  s.chunk.group_offset = static_cast<int32_t>(problem_.group_offset);
  launch.gradients.counter = reinterpret_cast<uint32_t*>(workspace + scratch_.counter);
  return {};
}

void BackwardPlan::set_chunk(const StagedBackward& staged, const StagedChunk& chunk,
                             Launch& launch) const {
  ScoreParameters& s = launch.scores;
  GradientParameters& g = launch.gradients;
  const auto heads = static_cast<int32_t>(chunk.heads.last - chunk.heads.first);
  s.chunk.regions = list_at<Region>(staged.regions, chunk.regions);
  s.chunk.lines = list_at<Line>(staged.lines, chunk.lines);
  s.chunk.head_blocks = chunk.head_blocks;
  s.chunk.first_head = static_cast<int32_t>(chunk.heads.first);
  s.chunk.first_key_head = static_cast<int32_t>(chunk.key_heads.first);
  s.items = list_at<ScoreItem>(staged.scores, chunk.scores);
  s.count = chunk.score_count;
  s.units = s.count * heads;
  g.chunk = s.chunk;
  g.items = list_at<GradientItem>(staged.gradients, chunk.gradients);
  g.units = chunk.gradient_count;
  if (!problem_.features.whole) return;
  GradientRows& dq = g.rows[static_cast<int>(Gradient::kDq)];
  dq.first_row = chunk.first_query;
  dq.first_head = s.chunk.first_head;
  dq.sums.stride_seq = heads * problem_.dim_qk;
  for (const Gradient gradient : {Gradient::kDk, Gradient::kDv}) {
    g.rows[static_cast<int>(gradient)].first_head = s.chunk.first_key_head;
  }
}

Status BackwardPlan::run(const StagedBackward& staged, const StagedChunk& chunk, Launch& launch,
                         Stream stream) const {
  set_chunk(staged, chunk, launch);
  if (launch.scores.units > 0) {
    LONGSPAN_CHECK_OK(launch_kernel(score_kernel(problem_.dtype),
                                    std::min(multiprocessors_, launch.scores.units), &launch.scores,
                                    stream));
  }
  if (launch.gradients.units == 0) return {};
  return launch_kernel(gradient_kernel(columns_, problem_.dtype),
                       std::min(multiprocessors_, launch.gradients.units), &launch.gradients,
                       stream);
}

Status BackwardPlan::forward(const ForwardTiles&, Workspace) const {
  return invalid("the plan was prepared for backward, not for forward");
}

Status BackwardPlan::backward(const BackwardTiles& t, Workspace workspace) const {
  LONGSPAN_CHECK_OK(fits(problem_, t, Carries::kAccumulator));
  if (t.tiles.empty()) return {};
  LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
  LONGSPAN_TRY(const StagedBackward* const staged, staged_backward(t));
  if (staged->chunks.empty()) return {};
  const cuda::DeviceScope scope(ordinal_);
  auto* const scratch = static_cast<std::byte*>(workspace.data);
  Launch launch;
  LONGSPAN_CHECK_OK(set_call(t, scratch, launch));
  LONGSPAN_CHECK_OK(cuda::fill_on_device(launch.gradients.counter, 0, sizeof(uint32_t), t.stream));
  for (const StagedChunk& chunk : staged->chunks) {
    LONGSPAN_CHECK_OK(run(*staged, chunk, launch, t.stream));
  }
  return {};
}

}  // namespace longspan::hopper
