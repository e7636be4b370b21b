#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "providers/hopper/maps.h"
#include "providers/hopper/plan.h"
#include "providers/hopper/readable.h"
#include "providers/hopper/staged.h"
#include "providers/hopper/terms.h"
#include "providers/rules.h"

namespace longspan::hopper {
namespace {

/// Of Q, and of O where it is stored like it.
Box query_box(const StagedWork& staged) {
  const Box& box = staged.kernel->q;
  if (staged.block_heads == 1) return box;
  return {.rows = box.rows / staged.block_heads, .blocks = 1, .heads = staged.block_heads};
}

/// Hidden scores are -inf before they are scaled, so the factor must be above 0.
float scale_log2_of(double scale) {
  constexpr float kLeast = 1e-30f;
  return std::max(static_cast<float>(std::abs(scale) * std::numbers::log2e), kLeast);
}

}  // namespace

Status HopperPlan::map_inputs(const StagedWork& staged, const ForwardTiles& t, std::byte* workspace,
                              Parameters& p) const {
  const Kernel& kernel = *staged.kernel;
  LONGSPAN_TRY(const TensorView q, readable(t.q, problem_.capacity_q, t.tiles, false, t.scale < 0,
                                            workspace + scratch_.q, t.stream));
  LONGSPAN_TRY(p.q, map_rows(q, query_box(staged)));
  const int64_t count = std::min(t.k.rows(), problem_.capacity_k);
  if (count == 0) {  // nothing is seen, but something must be mapped
    LONGSPAN_TRY(p.k, map_rows(q, kernel.k));
    LONGSPAN_TRY(p.v, map_rows(q, kernel.v));
    return {};
  }
  const auto keys = [&](const TensorView& view, size_t scratch) {
    return readable(view, problem_.capacity_k, t.tiles, true, false, workspace + scratch, t.stream);
  };
  LONGSPAN_TRY(const TensorView k, keys(t.k, scratch_.k));
  LONGSPAN_TRY(const TensorView v, keys(t.v, scratch_.v));
  LONGSPAN_TRY(p.k, map_rows(k, kernel.k));
  LONGSPAN_TRY(p.v, map_rows(v, kernel.v));
  return {};
}

Status HopperPlan::map_results(const StagedWork& staged, const ForwardTiles& t,
                               Parameters& p) const {
  p.out = row_view(t.o);
  p.lse = row_view(t.lse);
  p.wide = aligned(t.o, 16);
  p.stores_by_tma = staged.kernel->stages_o && mappable(t.o);
  if (!p.stores_by_tma) return {};
  LONGSPAN_TRY(p.o, map_rows(t.o, query_box(staged)));
  return {};
}

Result<Parameters> HopperPlan::parameters_of(const StagedWork& staged, const ForwardTiles& t,
                                             std::byte* workspace) const {
  Parameters p;
  LONGSPAN_CHECK_OK(map_inputs(staged, t, workspace, p));
  LONGSPAN_CHECK_OK(map_results(staged, t, p));
  p.counter = reinterpret_cast<uint32_t*>(workspace + scratch_.counter);
  p.heads = static_cast<int32_t>(problem_.heads_q / staged.block_heads);
  p.heads_log2 = std::countr_zero(static_cast<unsigned>(staged.block_heads));
  p.group = static_cast<int32_t>(problem_.group);
  p.group_offset = static_cast<int32_t>(problem_.group_offset);
  p.scale_log2 = scale_log2_of(t.scale);
  p.terms = terms_of(t.terms, p.scale_log2);
  p.terms.tokens = static_cast<const Tokens*>(staged.tokens.data());
  p.terms.max_logit = of_first_head(t.max_logit, t.terms);
  p.terms.max_logit_stride = t.max_logit.stride_head;
  return p;
}

Status HopperPlan::launch(const StagedWork& staged, Parameters& p, Stream stream) const {
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(static_cast<unsigned>(staged.kernel->threads));
  config.dynamicSmemBytes = static_cast<size_t>(staged.kernel->shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  for (const Wave& wave : staged.waves) {
    p.blocks = static_cast<const Block*>(staged.blocks.data()) + wave.first;
    p.count = static_cast<int32_t>(wave.count);
    p.units = p.count * p.heads;
    p.section_heads = static_cast<int32_t>(section_heads(problem_, wave) / staged.block_heads);
    config.gridDim = dim3(static_cast<unsigned>(std::min(multiprocessors_, p.units)));
    void* arguments[] = {&p};
    LONGSPAN_CHECK_OK(cuda::status(cudaLaunchKernelExC(&config, staged.kernel->entry, arguments),
                                   "launching a forward kernel of hopper"));
  }
  return {};
}

Status HopperPlan::forward(const ForwardTiles& t, Workspace workspace) const {
  LONGSPAN_CHECK_OK(fits(problem_, t, Carries::kAccumulator));
  if (t.tiles.empty()) return {};
  LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
  LONGSPAN_TRY(const StagedWork* const staged, staged_as<StagedWork>(t));
  if (staged->waves.empty()) return {};
  const cuda::DeviceScope scope(ordinal_);
  auto* const scratch = static_cast<std::byte*>(workspace.data);
  const bool pulls = staged->kernel->pull_bytes > 0;
  if (pulls != (t.pulled != nullptr)) {
    return invalid(pulls ? "tiles were staged to pull keys, and there are no loans to pull from"
                         : "tiles were staged for keys that are there: use stage_pulled()");
  }
  if (pulls) return forward_pulling(*staged, t, scratch);
  LONGSPAN_TRY(Parameters p, parameters_of(*staged, t, scratch));
  LONGSPAN_CHECK_OK(cuda::fill_on_device(p.counter, 0, sizeof(uint32_t), t.stream));
  return launch(*staged, p, t.stream);
}

Status HopperPlan::backward(const BackwardTiles&, Workspace) const {
  return invalid("the plan was prepared for forward, not for backward");
}

}  // namespace longspan::hopper
