#include <cuda_runtime_api.h>

#include "providers/hopper/plan.h"
#include "providers/rows/places.h"
#include "providers/rows/views.h"
#include "providers/sm90.h"

namespace longspan::hopper {
namespace {

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
  s.counter = places.take(sizeof(uint32_t));
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
  staged->tiles.assign(tiles.begin(), tiles.end());
  staged->kernel = &kernel_of(shape, problem_.dtype, problem_.features);
  const Work work =
      make_work(tiles, problem_.features.whole, staged->kernel->rows, staged->kernel->keys);
  staged->waves = work.waves;
  LONGSPAN_TRY(staged->blocks,
               cuda::Memory::copy_of(work.blocks.data(), work.blocks.size() * sizeof(Block)));
  if (has_terms(problem_.features)) {
    LONGSPAN_TRY(staged->tokens,
                 cuda::Memory::copy_of(work.tokens.data(), work.tokens.size() * sizeof(Tokens)));
  }
  LONGSPAN_CHECK_OK(load(*staged->kernel));
  return std::shared_ptr<const Staged>(std::move(staged));
}

}  // namespace longspan::hopper
