#include <cuda_runtime_api.h>

#include <algorithm>

#include "providers/hopper/check_pulls.h"
#include "providers/hopper/plan.h"
#include "providers/hopper/rules.h"
#include "providers/rows/places.h"
#include "providers/rows/views.h"
#include "providers/rules.h"
#include "providers/sm90.h"

namespace longspan::hopper {
namespace {

template <class T>
Result<cuda::Memory> table(const std::vector<T>& entries) {
  return cuda::Memory::copy_of(entries.data(), entries.size() * sizeof(T));
}

/// Loads kernels ahead of their first launch, which may be captured, and lets them have their
/// memory.
Status load(const Kernel& kernel) {
  LONGSPAN_CHECK_OK(rows::load_pack_view());
  return cuda::status(
      cudaFuncSetAttribute(kernel.entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kernel.shared_bytes),
      "loading a kernel of hopper");
}

}  // namespace

Scratch scratch_of(const TileProblem& p) {
  rows::Places places;
  Scratch s;
  s.counter = places.take(kCounters * sizeof(uint32_t));
  s.q = places.take(p.capacity_q * p.heads_q * p.dim_qk * 2);
  s.k = places.take(p.capacity_k * p.heads_kv * p.dim_qk * 2);
  s.v = places.take(p.capacity_k * p.heads_kv * p.dim_v * 2);
  s.end = places.end();
  return s;
}

Result<std::shared_ptr<const Staged>> HopperPlan::stage(std::span<const PlacedTile> tiles) const {
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_CHECK_OK(sm90::inside(problem_, tiles, "hopper"));
  const Shape shape = choose_shape(problem_, tiles, multiprocessors_);
  auto staged = std::make_shared<StagedWork>();
  staged->block_heads = block_heads(problem_, tiles, shape);
  const Kernel& kernel = staged->block_heads > 1
                             ? sharing_kernel_of(shape, problem_.dtype)
                             : kernel_of(shape, problem_.dtype, problem_.features);
  LONGSPAN_TRY([[maybe_unused]] const Work work, stage_blocks(tiles, kernel, *staged));
  return std::shared_ptr<const Staged>(std::move(staged));
}

Result<Work> HopperPlan::stage_blocks(std::span<const PlacedTile> tiles, const Kernel& kernel,
                                      StagedWork& staged) const {
  staged.tiles.assign(tiles.begin(), tiles.end());
  staged.kernel = &kernel;
  const int64_t queries = kernel.rows / staged.block_heads;
  Work work = make_work(tiles, problem_.features.whole, queries, kernel.keys);
  staged.waves = work.waves;
  LONGSPAN_TRY(staged.blocks, table(work.blocks));
  if (has_terms(problem_.features)) {
    LONGSPAN_TRY(staged.tokens, table(work.tokens));
  }
  LONGSPAN_CHECK_OK(load(kernel));
  return work;
}

Result<std::shared_ptr<const Staged>> HopperPlan::stage_pulled(std::span<const PlacedTile> tiles,
                                                               std::span<const Pull> pulls) const {
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_CHECK_OK(sm90::inside(problem_, tiles, "hopper"));
  LONGSPAN_CHECK_OK(preparable(pull_refusal(problem_)));
  LONGSPAN_CHECK_OK(check_pulls(tiles, pulls));
  auto staged = std::make_shared<StagedPulls>();
  const Kernel& kernel = pulling_kernel_of(pulling_shape(problem_), problem_.dtype);
  LONGSPAN_TRY(const Work blocks, stage_blocks(tiles, kernel, *staged));
  for (const Pull& pull : pulls) staged->lenders = std::max(staged->lenders, pull.lender + 1);
  const PullWork work = make_pull_work(tiles, pulls,
                                       {.keys = kernel.keys,
                                        .unit_bytes = kernel.pull_bytes,
                                        .row_bytes_k = problem_.heads_kv * problem_.dim_qk * 2,
                                        .row_bytes_v = problem_.heads_kv * problem_.dim_v * 2,
                                        .lenders = staged->lenders});
  std::vector<Start> starts;
  for (const Block& block : blocks.blocks) {
    starts.push_back(start_of(work, block, key_blocks_seen(block, kernel.rows, kernel.keys)));
  }
  staged->unit_count = static_cast<int32_t>(work.units.size());
  staged->piece_log2 = work.piece_log2;
  LONGSPAN_TRY(staged->units, table(work.units));
  std::copy(work.arrived.begin(), work.arrived.end(), staged->units_of_piece.begin());
  LONGSPAN_TRY(staged->starts, table(starts));
  LONGSPAN_TRY(staged->places, table(work.places));
  return std::shared_ptr<const Staged>(std::move(staged));
}

}  // namespace longspan::hopper
