#include "providers/cuda/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "cuda/runtime.h"
#include "providers/cuda/reference_kernels.h"
#include "providers/rules.h"

namespace longspan::cuda {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "cuda/reference"};
}

std::optional<Decline> refusal(const TileProblem& problem, const Device& device) {
  if (!device.is_cuda()) {
    return Decline{DeclineCode::kDevice, fmt::format("device {} is not a CUDA device: make one by "
                                                     "cuda_device()",
                                                     device.name)};
  }
  if (device.capability != 90) {  // what the kernels are compiled for
    return Decline{DeclineCode::kDevice,
                   fmt::format("compute capability {}.{} of {} is not 9.0", device.capability / 10,
                               device.capability % 10, device.name)};
  }
  if (problem.features.modification) {
    return Decline{DeclineCode::kModification,
                   fmt::format("callbacks (modification \"{}\") run on the host; use provider "
                               "cpu/tiled on the cpu",
                               *problem.features.modification)};
  }
  return longspan::refusal(problem);
}

/// Key tokens that tiles have.
Range key_tokens(const TileTable& table) {
  Range all;
  for (const TableTile& t : table.tiles) {
    const int64_t end = t.k_begin + (t.keys - 1) * t.k_stride + 1;
    const bool none = all.first >= all.last;
    all = none ? Range{t.k_begin, end}
               : Range{std::min(all.first, t.k_begin), std::max(all.last, end)};
  }
  return all;
}

class StagedTiles final : public Staged {
 public:
  Direction direction = Direction::kForward;
  int ordinal = 0;
  std::vector<PlacedTile> given;
  DeviceTable queries;
  DeviceTable keys;  // backward alone
  Range key_tokens;
  DeviceRows rows_q, rows_k;  // of whole results
};

class ReferencePlan final : public Plan {
 public:
  ReferencePlan(const TileProblem& problem, int ordinal) : problem_(problem), ordinal_(ordinal) {}

  size_t workspace_bytes() const override {
    if (!problem_.features.whole || problem_.direction == Direction::kForward) return 0;
    return static_cast<size_t>(problem_.capacity_q * problem_.heads_q) * sizeof(double);
  }

  Result<std::shared_ptr<const Staged>> stage(std::span<const PlacedTile> tiles) const override {
    const bool forward = problem_.direction == Direction::kForward;
    const DeviceScope scope(ordinal_);
    if (!tiles.empty()) {
      LONGSPAN_CHECK_OK(forward ? load_forward(problem_.dtype) : load_backward(problem_.dtype));
    }
    auto staged = std::make_shared<StagedTiles>();
    staged->direction = problem_.direction;
    staged->ordinal = ordinal_;
    staged->given.assign(tiles.begin(), tiles.end());
    LONGSPAN_TRY(staged->queries, DeviceTable::make(make_tile_table(tiles, Written::kQueryRows)));
    if (!forward) {
      const TileTable keys = make_tile_table(tiles, Written::kKeyRows);
      staged->key_tokens = cuda::key_tokens(keys);
      LONGSPAN_TRY(staged->keys, DeviceTable::make(keys));
    }
    if (problem_.features.whole) LONGSPAN_CHECK_OK(stage_rows(tiles, *staged));
    return std::shared_ptr<const Staged>(std::move(staged));
  }

  Status forward(const ForwardTiles& call, Workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, call, Carries::kAnyFloat));
    LONGSPAN_TRY(const StagedTiles* const staged, staged_of(call.staged, call.tiles));
    const DeviceScope scope(ordinal_);
    LONGSPAN_CHECK_OK(launch_fill(call.o, staged->rows_q, 0, call.stream));
    LONGSPAN_CHECK_OK(launch_fill(call.lse, staged->rows_q, -INFINITY, call.stream));
    return launch_forward(problem_, call, staged->queries);
  }

  Status backward(const BackwardTiles& given, Workspace workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, given, Carries::kAnyFloat));
    LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
    LONGSPAN_TRY(const StagedTiles* const staged, staged_of(given.staged, given.tiles));
    const DeviceScope scope(ordinal_);
    BackwardTiles call = given;
    if (call.delta.rows() == 0) {
      call.delta = packed_view(workspace.data, DType::kF64, call.q.rows(), problem_.heads_q, 1);
      LONGSPAN_CHECK_OK(launch_delta(call, call.delta));
    }
    LONGSPAN_CHECK_OK(launch_fill(call.dq, staged->rows_q, 0, call.stream));
    LONGSPAN_CHECK_OK(launch_fill(call.dk, staged->rows_k, 0, call.stream));
    LONGSPAN_CHECK_OK(launch_fill(call.dv, staged->rows_k, 0, call.stream));
    LONGSPAN_CHECK_OK(launch_query_gradients(problem_, call, staged->queries));
    LONGSPAN_CHECK_OK(launch_key_gradients(problem_, call, staged->keys));
    if (call.dbias.data == nullptr) return {};
    return launch_bias_gradient(problem_, call, staged->keys, staged->key_tokens);
  }

 private:
  Status stage_rows(std::span<const PlacedTile> tiles, StagedTiles& staged) const {
    LONGSPAN_CHECK_OK(load_rows());
    LONGSPAN_TRY(staged.rows_q, DeviceRows::make(tiles, Written::kQueryRows));
    if (problem_.direction == Direction::kForward) return {};
    LONGSPAN_TRY(staged.rows_k, DeviceRows::make(tiles, Written::kKeyRows));
    return {};
  }

  Result<const StagedTiles*> staged_of(const Staged* given,
                                       std::span<const PlacedTile> tiles) const {
    if (given == nullptr)
      return invalid("tiles are not staged: give what Plan::stage makes of them");
    const auto* const staged = dynamic_cast<const StagedTiles*>(given);
    if (staged == nullptr || staged->direction != problem_.direction ||
        staged->ordinal != ordinal_) {
      return invalid("tiles were staged by another plan: give what this one's stage makes of them");
    }
    if (!std::equal(tiles.begin(), tiles.end(), staged->given.begin(), staged->given.end())) {
      return invalid(fmt::format("{} tiles, but other ones ({}) were staged: stage these",
                                 tiles.size(), staged->given.size()));
    }
    return staged;
  }

  TileProblem problem_;
  int ordinal_;
};

}  // namespace

Result<DeviceTable> DeviceTable::make(const TileTable& table) {
  DeviceTable result;
  result.waves = table.waves;
  LONGSPAN_TRY(result.tiles,
               Memory::copy_of(table.tiles.data(), table.tiles.size() * sizeof(TableTile)));
  LONGSPAN_TRY(result.before,
               Memory::copy_of(table.before.data(), table.before.size() * sizeof(int64_t)));
  return Result<DeviceTable>(std::move(result));
}

Result<DeviceRows> DeviceRows::make(std::span<const PlacedTile> tiles, Written written) {
  std::vector<Range> ranges;
  for (const PlacedTile& t : tiles) {
    const Range rows = written_rows(t, written);
    if (rows.first < rows.last) ranges.push_back(rows);
  }
  DeviceRows result{.count = static_cast<int64_t>(ranges.size())};
  LONGSPAN_TRY(result.ranges, Memory::copy_of(ranges.data(), ranges.size() * sizeof(Range)));
  return Result<DeviceRows>(std::move(result));
}

}  // namespace longspan::cuda

namespace longspan {

constinit const CudaReference kCudaReference;

Verdict CudaReference::consider(const TileProblem& problem, const Device& device) const {
  if (auto decline = cuda::refusal(problem, device)) return *decline;
  return Offer{.detail = "f64 arithmetic, a block a row"};
}

Result<std::shared_ptr<const Plan>> CudaReference::prepare(const TileProblem& problem,
                                                           const Device& device) const {
  LONGSPAN_CHECK_OK(preparable(cuda::refusal(problem, device)));
  return std::shared_ptr<const Plan>(
      std::make_shared<cuda::ReferencePlan>(problem, device.ordinal));
}

}  // namespace longspan
