#include <cuda_runtime_api.h>

#include <map>
#include <utility>

#include "providers/hopper/backward/kernels.h"
#include "providers/hopper/backward/plan.h"
#include "providers/hopper/backward/row_statistics.h"
#include "providers/rows/views.h"
#include "providers/rules.h"
#include "providers/sm90.h"

namespace longspan::hopper {
namespace {

/// Loads a kernel ahead of its first launch, which may be captured, and lets it have its memory.
Status load(const BackwardKernel& kernel) {
  return cuda::status(
      cudaFuncSetAttribute(kernel.entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kernel.shared_bytes),
      "loading a backward kernel of hopper");
}

/// What a chunk's lists depend on: its parts, and its heads counted from its first ones.
using ListKey = std::pair<size_t, std::vector<int64_t>>;

ListKey key_of(const TileProblem& problem, const Chunk& chunk) {
  ListKey key{chunk.parts,
              {chunk.heads.last - chunk.heads.first, chunk.first_heads, chunk.last_heads}};
  for (int64_t head = chunk.key_heads.first; head < chunk.key_heads.last; ++head) {
    const Range heads = query_heads(problem, head);
    key.second.push_back(std::max(heads.first, chunk.heads.first) - chunk.heads.first);
    key.second.push_back(std::min(heads.last, chunk.heads.last) - chunk.heads.first);
  }
  return key;
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

template <class T>
Result<cuda::Memory> on_device(const std::vector<T>& list) {
  return cuda::Memory::copy_of(list.data(), list.size() * sizeof(T));
}

/// Appends a chunk's lists to `all`; the result says where.
StagedChunk append_lists(const TileProblem& problem, const Parts& parts, const Chunk& chunk,
                         const GradientColumns& columns, Lists& all) {
  const Lists lists = make_lists(problem, parts, chunk, columns);
  StagedChunk place = {.regions = all.regions.size(),
                       .lines = all.lines.size(),
                       .scores = all.scores.size(),
                       .values = all.values.size(),
                       .gradients = all.gradients.size(),
                       .score_count = static_cast<int32_t>(lists.scores.size()),
                       .value_count = static_cast<int32_t>(lists.values.size()),
                       .gradient_count = static_cast<int32_t>(lists.gradients.size()),
                       .head_blocks = lists.head_blocks,
                       .sums_q_row = static_cast<int32_t>(chunk.sums_q_row)};
  for (const Part& part : parts) place.reads = joined(place.reads, read_rows(part));
  append(all.regions, lists.regions);
  append(all.tokens, lists.tokens);
  append(all.lines, lists.lines);
  append(all.scores, lists.scores);
  append(all.values, lists.values);
  append(all.gradients, lists.gradients);
  return place;
}

}  // namespace

Result<std::shared_ptr<const Staged>> BackwardPlan::stage(std::span<const PlacedTile> tiles) const {
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_CHECK_OK(sm90::inside(problem_, tiles, "hopper"));
  auto staged = std::make_shared<StagedBackward>();
  staged->tiles.assign(tiles.begin(), tiles.end());
  const Chunks cut = cut_into_chunks(problem_, tiles, scratch_.units);
  std::map<ListKey, StagedChunk> known;
  Lists all;
  for (const Chunk& chunk : cut.chunks) {
    const ListKey key = key_of(problem_, chunk);
    auto found = known.find(key);
    if (found == known.end()) {
      const Parts& parts = cut.parts[chunk.parts];
      found = known.emplace(key, append_lists(problem_, parts, chunk, columns_, all)).first;
    }
    staged->chunks.push_back(found->second);
    staged->chunks.back().heads = chunk.heads;
    staged->chunks.back().key_heads = chunk.key_heads;
  }
  LONGSPAN_TRY(staged->regions, on_device(all.regions));
  if (has_terms(problem_.features)) {
    LONGSPAN_TRY(staged->tokens, on_device(all.tokens));
  }
  LONGSPAN_TRY(staged->lines, on_device(all.lines));
  LONGSPAN_TRY(staged->scores, on_device(all.scores));
  LONGSPAN_TRY(staged->values, on_device(all.values));
  LONGSPAN_TRY(staged->gradients, on_device(all.gradients));
  LONGSPAN_CHECK_OK(rows::load_pack_view());
  LONGSPAN_CHECK_OK(load_statistics());
  LONGSPAN_CHECK_OK(load(score_kernel_));
  LONGSPAN_CHECK_OK(load(gradient_kernel(columns_, problem_.dtype)));
  return std::shared_ptr<const Staged>(std::move(staged));
}

}  // namespace longspan::hopper
