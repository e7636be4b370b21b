#include <fmt/format.h>

#include <utility>

#include "providers/cudnn/bias.h"
#include "providers/cudnn/budget.h"
#include "providers/cudnn/graph_cache.h"
#include "providers/cudnn/plan.h"
#include "providers/rows/places.h"
#include "providers/rows/tables.h"
#include "providers/sm90.h"

namespace longspan::cudnn {
namespace {

/// What a group needs in device memory, and where.
struct Table {
  size_t entries = 0, lengths_q = 0, lengths_k = 0, tokens = 0;
};

Table write(const Group& group, rows::Tables& tables) {
  Table table{.entries = tables.append_entries(group.entries)};
  if (!group.padded) return table;
  std::vector<int32_t> lengths_q(static_cast<size_t>(group.batch), 0);
  std::vector<int32_t> lengths_k = lengths_q;
  for (size_t i = 0; i < group.entries.size(); ++i) {
    lengths_q[i] = static_cast<int32_t>(group.entries[i].nq);
    lengths_k[i] = static_cast<int32_t>(group.entries[i].nk);
  }
  std::vector<EntryTokens> tokens;
  for (const Entry& e : group.entries) tokens.push_back(e.tokens);
  table.tokens = tables.append(tokens);
  table.lengths_q = tables.append(lengths_q);
  table.lengths_k = tables.append(lengths_k);
  return table;
}

}  // namespace

Scratch scratch_of(const TileProblem& p) {
  const int64_t rows_q = p.capacity_q * p.heads_q;
  const int64_t rows_k = p.capacity_k * key_heads(p);
  rows::Places places;
  Scratch s;
  const auto take = [&](Slot slot, int64_t bytes) {
    s.tensors[static_cast<size_t>(slot)] = places.take(bytes);
  };
  take(Slot::kQ, rows_q * p.dim_qk * 2);
  take(Slot::kK, rows_k * p.dim_qk * 2);
  take(Slot::kV, rows_k * p.dim_v * 2);
  take(Slot::kO, rows_q * p.dim_v * 2);
  take(Slot::kStats, rows_q * 4);
  if (p.direction == Direction::kBackward) {
    take(Slot::kDout, rows_q * p.dim_v * 2);
    take(Slot::kDq, rows_q * p.dim_qk * 2);
    take(Slot::kDk, rows_k * p.dim_qk * 2);
    take(Slot::kDv, rows_k * p.dim_v * 2);
  }
  s.bias = places.take(bias_bytes(p));
  s.dbias = places.take(dbias_bytes(p));
  s.offsets = places.take(kTensors * offset_table_size(kMostEntries) * 8);
  if (p.features.device_lengths) {
    s.cut_entries = places.take(kMostEntries * static_cast<int64_t>(sizeof(DeviceEntry)));
    s.cut_lengths = places.take(2 * kMostEntries * static_cast<int64_t>(sizeof(int32_t)));
  }
  s.cudnn = places.take(cudnn_budget(p));
  s.end = places.end();
  return s;
}

GraphKey packed_key(const TileProblem& p, const Group& group, bool with_o, int ordinal) {
  const auto queries = [&](DType dtype, int64_t dim) {
    return packed_view(nullptr, dtype, p.capacity_q, p.heads_q, dim);
  };
  const auto keys = [&](DType dtype, int64_t dim) {
    return packed_view(nullptr, dtype, p.capacity_k, p.heads_kv, dim);
  };
  const TensorView q = queries(p.dtype, p.dim_qk);
  const TensorView k = keys(p.dtype, p.dim_qk);
  const TensorView v = keys(p.dtype, p.dim_v);
  const TensorView o = queries(p.dtype, p.dim_v);
  const TensorView lse = queries(DType::kF32, 1);
  const TileProblem slice = head_slice(p);
  if (p.direction == Direction::kForward) {
    const ForwardTiles tiles{.q = q, .k = k, .v = v, .o = o, .lse = lse};
    return graph_key(slice, group, operands_of(slice, group, tiles), ordinal);
  }
  const BackwardTiles tiles{.q = q,
                            .k = k,
                            .v = v,
                            .dout = o,
                            .lse = lse,
                            .o = with_o ? o : TensorView(),
                            .dq = q,
                            .dk = k,
                            .dv = v};
  return graph_key(slice, group, operands_of(slice, group, tiles), ordinal);
}

Status fits_budget(const TileProblem& problem, const Graph& graph, const GraphKey& key) {
  const int64_t budget = cudnn_budget(problem);
  if (static_cast<int64_t>(graph.workspace_bytes()) <= budget) return {};
  return Error{ErrorCode::kInternal,
               fmt::format("cuDNN wants {} bytes of workspace, {} were planned: {}",
                           graph.workspace_bytes(), budget, text(key)),
               "cudnn"};
}

Result<std::shared_ptr<const Staged>> CudnnPlan::stage(std::span<const PlacedTile> tiles) const {
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_CHECK_OK(sm90::inside(problem_, tiles, "cudnn"));
  auto result = std::make_shared<StagedGroups>();
  result->tiles.assign(tiles.begin(), tiles.end());
  const std::vector<Group> groups = make_groups(slice_, tiles);
  rows::Tables memory;
  std::vector<Table> tables;
  std::vector<GraphKey> keys, others;
  for (const Group& group : groups) {
    keys.push_back(packed_key(problem_, group, true, ordinal_));
    others.push_back(packed_key(problem_, group, false, ordinal_));
    tables.push_back(write(group, memory));
  }
  std::vector<Entry> blanks;
  if (problem_.features.whole) blanks = rows::entries_of(blanks_of(problem_, tiles, groups));
  const size_t blanks_begin = memory.append_entries(blanks);
  keys.insert(keys.end(), others.begin(), others.end());
  LONGSPAN_TRY(const auto graphs, make_graphs(keys));
  LONGSPAN_TRY(result->tables, cuda::Memory::copy_of(memory.bytes().data(), memory.bytes().size()));
  const char* const base = static_cast<const char*>(result->tables.data());
  result->blanks = rows::list_of(blanks, base + blanks_begin);
  for (size_t i = 0; i < groups.size(); ++i) {
    LONGSPAN_CHECK_OK(fits_budget(slice_, *graphs[i], keys[i]));
    StagedGroup staged{.group = groups[i],
                       .key = keys[i],
                       .graph = graphs[i],
                       .list = rows::list_of(groups[i].entries, base + tables[i].entries)};
    staged.lengths_q = reinterpret_cast<const int32_t*>(base + tables[i].lengths_q);
    staged.lengths_k = reinterpret_cast<const int32_t*>(base + tables[i].lengths_k);
    if (problem_.features.device_lengths) {
      staged.tokens = reinterpret_cast<const EntryTokens*>(base + tables[i].tokens);
    }
    result->groups.push_back(std::move(staged));
  }
  return std::shared_ptr<const Staged>(std::move(result));
}

}  // namespace longspan::cudnn
