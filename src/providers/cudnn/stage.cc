#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "providers/cudnn/budget.h"
#include "providers/cudnn/graph_cache.h"
#include "providers/cudnn/layout.h"
#include "providers/cudnn/plan.h"

namespace longspan::cudnn {
namespace {

constexpr size_t kPartAlignment = 256;
constexpr size_t kTableAlignment = 16;  // what cudnn-frontend says of all tensors

/// Lays parts one behind the other.
class Places {
 public:
  size_t take(int64_t bytes) {
    const size_t place = end_;
    end_ += (static_cast<size_t>(bytes) + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    return place;
  }
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

Status inside(const TileProblem& p, std::span<const PlacedTile> tiles) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    const PlacedTile& t = tiles[i];
    const int64_t end_q = t.q_row + t.tile.q.size();
    const int64_t end_k = t.k_row + t.tile.k.size();
    const bool fits =
        t.q_row >= 0 && t.k_row >= 0 && end_q <= p.capacity_q && end_k <= p.capacity_k;
    if (fits) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tile {} has query rows [{}, {}) and key rows [{}, {}); the plan was "
                             "prepared for {} and {}",
                             i, t.q_row, end_q, t.k_row, end_k, p.capacity_q, p.capacity_k),
                 "cudnn"};
  }
  return {};
}

/// What a group needs in device memory, and where.
struct Table {
  size_t entries = 0, lengths_q = 0, lengths_k = 0;
};

class TableWriter {
 public:
  Table write(const Group& group);
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class T>
  size_t append(const std::vector<T>& values) {
    const size_t place = (bytes_.size() + kTableAlignment - 1) / kTableAlignment * kTableAlignment;
    bytes_.resize(place + values.size() * sizeof(T));
    std::memcpy(bytes_.data() + place, values.data(), values.size() * sizeof(T));
    return place;
  }

  std::vector<std::byte> bytes_;
};

Table TableWriter::write(const Group& group) {
  std::vector<DeviceEntry> entries;
  DeviceEntry next;
  for (const Entry& e : group.entries) {
    next = {e.q_row, e.k_row, next.q_begin + next.nq, next.k_begin + next.nk, e.nq, e.nk};
    entries.push_back(next);
  }
  Table table{.entries = append(entries)};
  if (!group.padded) return table;
  std::vector<int32_t> lengths_q(static_cast<size_t>(group.batch), 0);
  std::vector<int32_t> lengths_k = lengths_q;
  for (size_t i = 0; i < group.entries.size(); ++i) {
    lengths_q[i] = static_cast<int32_t>(group.entries[i].nq);
    lengths_k[i] = static_cast<int32_t>(group.entries[i].nk);
  }
  table.lengths_q = append(lengths_q);
  table.lengths_k = append(lengths_k);
  return table;
}

}  // namespace

Scratch scratch_of(const TileProblem& p) {
  const int64_t rows_q = p.capacity_q * p.heads_q;
  const int64_t rows_k = p.capacity_k * key_heads(p);
  const bool backward = p.direction == Direction::kBackward;
  Places places;
  Scratch s;
  s.o = places.take(rows_q * p.dim_v * 2);
  s.stats = places.take(rows_q * 4);
  s.q = places.take(rows_q * p.dim_qk * 2);
  s.k = places.take(rows_k * p.dim_qk * 2);
  s.v = places.take(rows_k * p.dim_v * 2);
  if (backward) {
    s.dout = places.take(rows_q * p.dim_v * 2);
    s.dq = places.take(rows_q * p.dim_qk * 2);
    s.dk = places.take(rows_k * p.dim_qk * 2);
    s.dv = places.take(rows_k * p.dim_v * 2);
  }
  s.offsets = places.take(kOffsetTables * offset_table_size(kMostEntries) * 8);
  s.cudnn = places.take(cudnn_budget(p));
  s.end = places.end();
  return s;
}

GraphKey graph_key(const TileProblem& p, const Group& group, int ordinal) {
  return {.direction = p.direction,
          .dtype = p.dtype,
          .heads_q = p.heads_q,
          .heads_kv = key_heads(p),
          .dim_qk = p.dim_qk,
          .dim_v = p.dim_v,
          .deterministic = p.features.deterministic && p.direction == Direction::kBackward,
          .ragged = group.ragged,
          .padded = group.padded,
          .mask = group.mask,
          .batch = group.batch,
          .sq = group.sq,
          .skv = group.skv,
          .total_q = group.total_q,
          .total_k = group.total_k,
          .ordinal = ordinal};
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
  LONGSPAN_CHECK_OK(inside(problem_, tiles));
  auto result = std::make_shared<StagedGroups>();
  result->tiles.assign(tiles.begin(), tiles.end());
  TableWriter writer;
  std::vector<Table> tables;
  std::vector<GraphKey> keys;
  for (Group& group : make_groups(problem_, tiles)) {
    GraphKey key = graph_key(problem_, group, ordinal_);
    key.q = packed_tensor(group, false, problem_.heads_q, problem_.dim_qk);
    key.k = packed_tensor(group, true, problem_.heads_kv, problem_.dim_qk);
    key.v = packed_tensor(group, true, problem_.heads_kv, problem_.dim_v);
    keys.push_back(key);
    tables.push_back(writer.write(group));
    result->groups.push_back({.group = std::move(group), .key = key});
  }
  LONGSPAN_TRY(const auto graphs, make_graphs(keys));
  LONGSPAN_TRY(result->tables, cuda::Memory::copy_of(writer.bytes().data(), writer.bytes().size()));
  const char* const base = static_cast<const char*>(result->tables.data());
  for (size_t i = 0; i < graphs.size(); ++i) {
    StagedGroup& staged = result->groups[i];
    LONGSPAN_CHECK_OK(fits_budget(problem_, *graphs[i], staged.key));
    staged.graph = graphs[i];
    staged.entries = reinterpret_cast<const DeviceEntry*>(base + tables[i].entries);
    staged.lengths_q = reinterpret_cast<const int32_t*>(base + tables[i].lengths_q);
    staged.lengths_k = reinterpret_cast<const int32_t*>(base + tables[i].lengths_k);
  }
  return std::shared_ptr<const Staged>(std::move(result));
}

}  // namespace longspan::cudnn
