#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "providers/hopper/backward/kernels.h"
#include "providers/hopper/backward/operands.h"
#include "providers/hopper/backward/plan.h"
#include "providers/hopper/backward/row_statistics.h"
#include "providers/hopper/maps.h"
#include "providers/hopper/staged.h"
#include "providers/hopper/terms.h"
#include "providers/rules.h"

namespace longspan::hopper {

/// What both kernels of a call are launched with; chunks fill in their own.
struct BackwardPlan::Launch {
  ScoreParameters scores;
  ValueParameters values;  // in the place of scores; what they share is copied at the launch
  GradientParameters gradients;
  bool in_place = true;  // whether TMA reads the caller's operands
  bool follows = false;  // whether one of the two kernels is the last in the stream
};

namespace {

/// Hidden scores are infinite before they are scaled, so the factor must not be 0.
float scale_log2_of(double scale) {
  constexpr float kLeast = 1e-30f;
  const auto factor = static_cast<float>(scale * std::numbers::log2e);
  return std::abs(factor) < kLeast ? kLeast : factor;
}

/// Steps of 64 columns; behind the last column zeros are read.
int32_t steps_of(int64_t dim, int64_t least) {
  return static_cast<int32_t>(std::max((dim + 63) / 64, least));
}

/// Of two ranges; empty ranges begin where the second one does.
Range both(Range a, Range b) {
  const Range result{std::max(a.first, b.first), std::min(a.last, b.last)};
  return result.first < result.last ? result : Range{b.first, b.first};
}

template <class T>
const T* list_at(const cuda::Memory& lists, size_t first) {
  return static_cast<const T*>(lists.data()) + first;
}

/// `early`: its blocks may begin while the kernel before it, one of these two, still runs.
Status launch_kernel(const BackwardKernel& kernel, int blocks, const void* parameters, bool early,
                     Stream stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<size_t>(kernel.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  void* arguments[] = {const_cast<void*>(parameters)};
  return cuda::status(cudaLaunchKernelExC(&config, kernel.entry, arguments),
                      "launching a backward kernel of hopper");
}

}  // namespace

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
  // P lies in scratch without the factor of the pairs that dropout keeps.
  rows[static_cast<int>(Gradient::kDv)] =
      rows_of(t.dv, scratch_.sums_v, launch.scores.terms.keep_factor);
}

Status BackwardPlan::set_call(const BackwardTiles& t, std::byte* workspace, Launch& launch) const {
  launch.in_place = in_place(t);
  if (launch.in_place) {
    LONGSPAN_CHECK_OK(
        map_operands(views_of(t), columns_, key_rows(), launch.scores, launch.gradients));
  }
  auto* const statistics = reinterpret_cast<RowStatistics*>(workspace + scratch_.statistics);
  const int64_t rows = problem_.capacity_q + kStatisticsPadding;
  LONGSPAN_CHECK_OK(make_statistics(t, statistics, rows));
  ScoreParameters& s = launch.scores;
  s.statistics = statistics;
  s.rows = rows;
  s.steps_qk = steps_of(problem_.dim_qk, kLeastStepsOfScores);
  s.steps_v = steps_of(problem_.dim_v, kLeastStepsOfDp);
  s.scale_log2 = scale_log2_of(t.scale);
  s.hidden = s.scale_log2 < 0 ? INFINITY : -INFINITY;
  s.terms = terms_of(t.terms, s.scale_log2);
  if (s.terms.cap_log2 != 0) s.cap_inverse = 1 / s.terms.cap_log2;
  set_rows(t, workspace, launch);
  s.chunk.p = reinterpret_cast<char*>(workspace + scratch_.p);
  s.chunk.ds = reinterpret_cast<char*>(workspace + scratch_.ds);
  s.chunk.group = static_cast<int32_t>(problem_.group);
  s.chunk.group_offset = static_cast<int32_t>(problem_.group_offset);
  auto* const counter = reinterpret_cast<uint32_t*>(workspace + scratch_.counter);
  launch.gradients.counter = launch.values.counter = counter;
  launch.values.turns = counter + 1;
  return {};
}

void BackwardPlan::set_chunk(const StagedBackward& staged, const StagedChunk& chunk,
                             Launch& launch) const {
  ScoreParameters& s = launch.scores;
  GradientParameters& g = launch.gradients;
  const auto heads = static_cast<int32_t>(chunk.heads.last - chunk.heads.first);
  s.chunk.regions = list_at<Region>(staged.regions, chunk.regions);
  if (has_terms(problem_.features)) {
    s.terms.tokens = list_at<Tokens>(staged.tokens, chunk.regions);
  }
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
  launch.values.items = list_at<GradientItem>(staged.values, chunk.values);
  launch.values.units = chunk.value_count;
  if (!problem_.features.whole) return;
  GradientRows& dq = g.rows[static_cast<int>(Gradient::kDq)];
  dq.first_row = chunk.sums_q_row;
  dq.first_head = s.chunk.first_head;
  dq.sums.stride_seq = heads * problem_.dim_qk;
  for (const Gradient gradient : {Gradient::kDk, Gradient::kDv}) {
    g.rows[static_cast<int>(gradient)].first_head = s.chunk.first_key_head;
  }
}

void BackwardPlan::complete_values(Launch& launch) const {
  const ScoreParameters& s = launch.scores;
  ValueParameters& v = launch.values;
  v.q = s.q, v.k = s.k, v.v = s.v, v.dout = s.dout;
  v.chunk = launch.gradients.chunk;
  v.statistics = s.statistics;
  v.rows = s.rows;
  v.scale_log2 = s.scale_log2;
  v.hidden = s.hidden;
  v.values = launch.gradients.rows[static_cast<int>(Gradient::kDv)];
  v.only_key_head = launch.gradients.only_key_head;
}

Status BackwardPlan::run(Launch& launch, Stream stream) const {
  const auto blocks = [&](int32_t units) { return std::min(multiprocessors_, units); };
  const int32_t units = sums_values_ ? launch.values.units : launch.scores.units;
  if (units > 0) {
    if (sums_values_) complete_values(launch);
    const void* const parameters = sums_values_ ? static_cast<const void*>(&launch.values)
                                                : static_cast<const void*>(&launch.scores);
    LONGSPAN_CHECK_OK(
        launch_kernel(score_kernel_, blocks(units), parameters, launch.follows, stream));
    launch.follows = true;
  }
  if (launch.gradients.units == 0) return {};
  LONGSPAN_CHECK_OK(launch_kernel(gradient_kernel(columns_, problem_.dtype),
                                  blocks(launch.gradients.units), &launch.gradients, launch.follows,
                                  stream));
  launch.follows = true;
  return {};
}

/// A key head at a time, of copies.
Status BackwardPlan::run_packed(const BackwardTiles& t, const StagedChunk& chunk,
                                std::byte* workspace, const Launch& all) const {
  for (int64_t head = chunk.key_heads.first; head < chunk.key_heads.last; ++head) {
    const Range heads = both(query_heads(problem_, head), chunk.heads);
    Launch launch = all;
    LONGSPAN_TRY(const OperandViews views,
                 packed_operands(t, chunk.reads, head, heads, workspace + scratch_.rows));
    ScoreParameters& s = launch.scores;
    LONGSPAN_CHECK_OK(map_operands(views, columns_, key_rows(), s, launch.gradients));
    const int64_t place = (heads.first - chunk.heads.first) * chunk.head_blocks * kBlockBytes;
    s.chunk.p += place;
    s.chunk.ds += place;
    s.chunk.first_head = static_cast<int32_t>(heads.first);
    s.units = s.count * static_cast<int32_t>(heads.last - heads.first);
    launch.gradients.only_key_head = static_cast<int32_t>(head - chunk.key_heads.first);
    LONGSPAN_CHECK_OK(run(launch, t.stream));
  }
  return {};
}

Status BackwardPlan::forward(const ForwardTiles&, Workspace) const {
  return invalid("the plan was prepared for backward, not for forward");
}

Status BackwardPlan::backward(const BackwardTiles& t, Workspace workspace) const {
  LONGSPAN_CHECK_OK(fits(problem_, t, Carries::kAccumulator));
  if (t.tiles.empty()) return {};
  LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
  LONGSPAN_TRY(const StagedBackward* const staged, staged_as<StagedBackward>(t));
  if (staged->chunks.empty()) return {};
  const cuda::DeviceScope scope(ordinal_);
  auto* const scratch = static_cast<std::byte*>(workspace.data);
  Launch launch;
  LONGSPAN_CHECK_OK(set_call(t, scratch, launch));
  const auto zeros = static_cast<size_t>(1 + scratch_.turns) * sizeof(uint32_t);
  LONGSPAN_CHECK_OK(cuda::fill_on_device(launch.gradients.counter, 0, zeros, t.stream));
  for (const StagedChunk& chunk : staged->chunks) {
    set_chunk(*staged, chunk, launch);
    LONGSPAN_CHECK_OK(launch.in_place ? run(launch, t.stream)
                                      : run_packed(t, chunk, scratch, launch));
  }
  return {};
}

}  // namespace longspan::hopper
