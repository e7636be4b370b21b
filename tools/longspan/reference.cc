#include "reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "numbers.h"

namespace longspan::tool {
namespace {

/// Work of one call, small enough for a progress bar to move.
constexpr double kFlopsPerCall = 4e9;

Result<const Provider*> reference_provider() {
  for (const Provider* provider : providers()) {
    if (provider->name() == "cpu/reference") return provider;
  }
  return Error{ErrorCode::kInternal, "provider cpu/reference is missing from the list", "check"};
}

Tensor filled(const TensorSpec& spec, int64_t rows, double value) {
  Tensor tensor =
      make_tensor({spec.side, DType::kF64, spec.heads, spec.dim}, Layout::kTHD, 1, rows);
  std::fill_n(static_cast<double*>(tensor.view.data), rows * spec.heads * spec.dim, value);
  return tensor;
}

Reference empty_reference(const Problem& problem) {
  const auto zeros = [&](const char* name) {
    const TensorSpec spec = tensor_spec(problem, name);
    return filled(spec, whole_rows(problem, spec.side), 0);
  };
  return {.o = zeros("o"),
          .lse = filled(tensor_spec(problem, "lse"), problem.lengths.tokens_q,
                        -std::numeric_limits<double>::infinity()),
          .dq = zeros("dq"),
          .dk = zeros("dk"),
          .dv = zeros("dv")};
}

/// Tiles of all sequences, none much above kFlopsPerCall.
std::vector<PlacedTile> make_tiles(const Problem& problem) {
  std::vector<PlacedTile> tiles;
  const auto per_pair = static_cast<double>(problem.heads_q * 2 * (problem.dim_qk + problem.dim_v));
  for (size_t i = 0; i < problem.lengths.sequences.size(); ++i) {
    const Sequence& sequence = problem.lengths.sequences[i];
    const double row = std::max(1.0, per_pair * static_cast<double>(sequence.k_length));
    const int64_t step = std::max<int64_t>(64, static_cast<int64_t>(kFlopsPerCall / row));
    for (int64_t begin = 0; begin < sequence.q_length; begin += step) {
      const Interval q{begin, std::min(begin + step, sequence.q_length), 1};
      const Tile tile =
          make_tile(static_cast<int32_t>(i), problem.band(sequence), q, {0, sequence.k_length, 1});
      if (empty(tile)) continue;
      tiles.push_back({tile, sequence.q_offset + tile.q.begin, sequence.k_offset + tile.k.begin});
    }
  }
  return tiles;
}

/// Calls run(part) for consecutive parts of the tiles of about kFlopsPerCall each.
template <class Run>
Status in_parts(const Problem& problem, std::span<const PlacedTile> tiles, Progress& progress,
                const char* what, Run&& run) {
  const auto per_pair = static_cast<double>(problem.heads_q * 2 * (problem.dim_qk + problem.dim_v));
  size_t begin = 0;
  while (begin < tiles.size()) {
    double work = 0;
    size_t end = begin;
    while (end < tiles.size() && (end == begin || work < kFlopsPerCall)) {
      work += per_pair * static_cast<double>(area(tiles[end++].tile));
    }
    LONGSPAN_CHECK_OK(run(tiles.subspan(begin, end - begin)));
    begin = end;
    progress.show(what, static_cast<double>(begin) / static_cast<double>(tiles.size()));
  }
  return {};
}

TileProblem tile_problem(const Problem& problem, Direction direction) {
  return {.direction = direction,
          .dtype = problem.dtype,
          .heads_q = problem.heads_q,
          .heads_kv = problem.heads_kv,
          .group = problem.group(),
          .group_offset = 0,
          .dim_qk = problem.dim_qk,
          .dim_v = problem.dim_v,
          .capacity_q = problem.lengths.tokens_q,
          .capacity_k = problem.lengths.tokens_k,
          .not_offered = problem.not_offered};
}

struct Prepared {
  std::shared_ptr<const Plan> plan;
  Memory memory;
  Workspace workspace() const { return {memory.data(), memory.size()}; }
};

Result<Prepared> prepare(const Problem& problem, Direction direction, const Device& device) {
  LONGSPAN_TRY(const Provider* provider, reference_provider());
  LONGSPAN_TRY(auto plan, provider->prepare(tile_problem(problem, direction), device));
  Memory memory(plan->workspace_bytes());
  return Prepared{std::move(plan), std::move(memory)};
}

/// rowsum(dout * o). Rows that hold no token are left 0: their dout may be anything.
Tensor make_delta(const Inputs& inputs, const Tensor& o) {
  const Problem& problem = inputs.problem;
  Tensor delta = filled(tensor_spec(problem, "lse"), problem.lengths.tokens_q, 0);
  const std::vector<bool> tokens = token_rows(problem, Side::kQuery);
  for (int64_t row = 0; row < o.view.rows(); ++row) {
    if (!tokens[static_cast<size_t>(row)]) continue;
    for (int64_t head = 0; head < o.view.heads; ++head) {
      double sum = 0;
      for (int64_t column = 0; column < o.view.dim; ++column) {
        sum += load(o.view, row, head, column) * load(inputs.dout.view, row, head, column);
      }
      store(delta.view, row, head, 0, sum);
    }
  }
  return delta;
}

double reference_bytes(const Problem& problem) {
  double bytes = 0;
  for (const char* name : {"o", "lse", "dq", "dk", "dv"}) {
    const TensorSpec spec = tensor_spec(problem, name);
    bytes += 8.0 * static_cast<double>(whole_rows(problem, spec.side)) *
             static_cast<double>(spec.heads * spec.dim);
  }
  return bytes;
}

}  // namespace

Result<Reference> compute_reference(const Inputs& inputs, const Device& device,
                                    Progress& progress) {
  const Problem& problem = inputs.problem;
  LONGSPAN_CHECK_OK(
      fits_in_memory(reference_bytes(problem), "the float64 check (see --check none)"));
  Reference reference = empty_reference(problem);
  const std::vector<PlacedTile> tiles = make_tiles(problem);
  LONGSPAN_TRY(const Prepared forward, prepare(problem, Direction::kForward, device));
  ForwardTiles ahead{.q = inputs.q.view,
                     .k = inputs.k.view,
                     .v = inputs.v.view,
                     .o = reference.o.view,
                     .lse = reference.lse.view,
                     .tiles = {},
                     .scale = problem.scale};
  LONGSPAN_CHECK_OK(in_parts(problem, tiles, progress, "check forward", [&](auto part) {
    ahead.tiles = part;
    return forward.plan->forward(ahead, forward.workspace());
  }));
  const Tensor delta = make_delta(inputs, reference.o);
  LONGSPAN_TRY(const Prepared backward, prepare(problem, Direction::kBackward, device));
  BackwardTiles back{.q = inputs.q.view,
                     .k = inputs.k.view,
                     .v = inputs.v.view,
                     .dout = inputs.dout.view,
                     .lse = reference.lse.view,
                     .delta = delta.view,
                     .dq = reference.dq.view,
                     .dk = reference.dk.view,
                     .dv = reference.dv.view,
                     .tiles = {},
                     .scale = problem.scale};
  LONGSPAN_CHECK_OK(in_parts(problem, tiles, progress, "check backward", [&](auto part) {
    back.tiles = part;
    return backward.plan->backward(back, backward.workspace());
  }));
  return reference;
}

}  // namespace longspan::tool
