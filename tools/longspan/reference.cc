#include "reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mirror.h"
#include "numbers.h"

namespace longspan::tool {
namespace {

/// Work of one call, small enough for a progress bar to move.
constexpr double kFlopsPerCall = 4e9;

Result<const Provider*> reference_provider(const Device& device) {
  const std::string_view wanted = device.is_cuda() ? "cuda/reference" : "cpu/reference";
  for (const Provider* provider : providers()) {
    if (provider->name() == wanted) return provider;
  }
  return Error{ErrorCode::kInternal, fmt::format("provider {} is missing from the list", wanted),
               "check"};
}

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Tensor filled(Tensor tensor, double value) {
  const size_t count = tensor.memory.size() / sizeof(double);
  std::fill_n(static_cast<double*>(tensor.view.data), count, value);
  return tensor;
}

Tensor packed(const Problem& problem, std::string_view name, double value) {
  TensorSpec spec = tensor_spec(problem, name);
  spec.dtype = DType::kF64;
  return filled(make_tensor(spec, Layout::kTHD, 1, whole_rows(problem, spec.side)), value);
}

Reference empty_reference(const Problem& problem, bool forward_only) {
  return make_results(problem, forward_only, [&](std::string_view name) {
    const bool raised = name == "lse" || name == "max_logit";
    const double value = raised ? kMinusInfinity : 0;
    return has_rows(name) ? packed(problem, name, value)
                          : filled(side_tensor(problem, name, DType::kF64), value);
  });
}

/// The tiles of queries `q` of one sequence.
void add_tiles(const Problem& problem, int64_t number, Interval q, std::vector<PlacedTile>& tiles) {
  const Sequence& sequence = problem.lengths.sequences[static_cast<size_t>(number)];
  const Range range = problem.mask_tiles(number, q);
  for (int64_t i = range.first; i < range.last; ++i) {
    const MaskTile mask = problem.mask_tile(number, i);
    const Tile tile = make_tile(static_cast<int32_t>(number), mask.band,
                                between(q, mask.q.begin, mask.q.end), mask.k);
    if (empty(tile)) continue;
    tiles.push_back({.tile = tile,
                     .q_row = sequence.q_offset + tile.q.begin,
                     .k_row = sequence.k_offset + tile.k.begin,
                     .shift = problem.shift(sequence)});
  }
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
      add_tiles(problem, static_cast<int64_t>(i), q, tiles);
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
  Features features = features_of(problem, direction);
  features.paged = false;  // the whole tensors are not
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
          .features = features};
}

Result<ScoreTerms> score_terms(const Inputs& inputs, Mirror& mirror) {
  ScoreTerms terms{.head_begin = 0,
                   .softcap = inputs.problem.softcap,
                   .slopes = {},
                   .bias = {},
                   .modification = inputs.problem.modification.functions.get(),
                   .dropout = inputs.problem.dropout_values()};
  LONGSPAN_TRY(terms.slopes, mirror.copy_of(inputs.slopes.view));
  LONGSPAN_TRY(terms.bias, mirror.copy_of(inputs.bias.view));
  return terms;
}

struct Prepared {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<void> memory;
  Workspace workspace() const { return {memory.get(), plan->workspace_bytes()}; }
};

Result<Prepared> prepare(const Problem& problem, Direction direction, const Device& device) {
  LONGSPAN_TRY(const Provider* provider, reference_provider(device));
  LONGSPAN_TRY(auto plan, provider->prepare(tile_problem(problem, direction), device));
  LONGSPAN_TRY(auto memory, allocate_on(device, plan->workspace_bytes()));
  return Prepared{std::move(plan), std::move(memory)};
}

template <class Body>
void for_each_token(const Problem& problem, Body&& body) {
  for (const Sequence& sequence : problem.lengths.sequences) {
    for (int64_t i = 0; i < sequence.q_length; ++i) {
      for (int64_t head = 0; head < problem.heads_q; ++head) body(sequence.q_offset + i, head);
    }
  }
}

double sink_logit(const Inputs& inputs, int64_t head) {
  const Tensor& sink = inputs.sink;
  return sink.view.data == nullptr ? 0 : load(sink.view, 0, head, 0);
}

/// The sink enters the denominators of all keys together.
void add_sink(const Inputs& inputs, const Reference& reference) {
  if (inputs.problem.sink == Sink::kNone) return;
  for_each_token(inputs.problem, [&](int64_t row, int64_t head) {
    const double sink = sink_logit(inputs, head);
    if (sink == kMinusInfinity) return;
    const double keys = load(reference.lse.view, row, head, 0);
    const double largest = std::max(sink, keys);
    const double lse = largest + std::log1p(std::exp(std::min(sink, keys) - largest));
    store(reference.lse.view, row, head, 0, lse);
    const double factor = std::exp(keys - lse);
    for (int64_t column = 0; column < reference.o.view.dim; ++column) {
      store(reference.o.view, row, head, column,
            factor * load(reference.o.view, row, head, column));
    }
  });
}

/// dsink = -sum over rows of P(sink) delta.
void add_sink_gradient(const Inputs& inputs, const Tensor& delta, const Reference& reference) {
  if (reference.dsink.view.data == nullptr) return;
  for_each_token(inputs.problem, [&](int64_t row, int64_t head) {
    const double sink = sink_logit(inputs, head);
    if (sink == kMinusInfinity) return;
    const double weight = std::exp(sink - load(reference.lse.view, row, head, 0));
    const double sum = load(reference.dsink.view, 0, head, 0);
    store(reference.dsink.view, 0, head, 0, sum - weight * load(delta.view, row, head, 0));
  });
}

/// rowsum(dout * o). Rows that hold no token are left 0: their dout may be anything.
Tensor make_delta(const Inputs& inputs, const Tensor& o) {
  Tensor delta = packed(inputs.problem, "lse", 0);
  for_each_token(inputs.problem, [&](int64_t row, int64_t head) {
    double sum = 0;
    for (int64_t column = 0; column < o.view.dim; ++column) {
      sum += load(o.view, row, head, column) * load(inputs.dout.view, row, head, column);
    }
    store(delta.view, row, head, 0, sum);
  });
  return delta;
}

double reference_bytes(const Problem& problem) {
  double bytes = 0;
  for (const char* name : {"o", "lse", "dq", "dk", "dv"}) {
    const TensorSpec spec = tensor_spec(problem, name);
    bytes += 8.0 * static_cast<double>(whole_rows(problem, spec.side)) *
             static_cast<double>(spec.heads * spec.dim);
  }
  double bias = 8;
  for (const int64_t extent : problem.bias_shape()) bias *= static_cast<double>(extent);
  return bytes + bias;
}

Status run_forward(const Inputs& inputs, std::span<const PlacedTile> tiles, const Device& device,
                   Progress& progress, Reference& reference) {
  const Problem& problem = inputs.problem;
  LONGSPAN_TRY(const Prepared forward, prepare(problem, Direction::kForward, device));
  Mirror mirror(device);
  ForwardTiles call{.scale = problem.scale};
  LONGSPAN_TRY(call.q, mirror.copy_of(inputs.q.view));
  LONGSPAN_TRY(call.k, mirror.copy_of(inputs.k.view));
  LONGSPAN_TRY(call.v, mirror.copy_of(inputs.v.view));
  LONGSPAN_TRY(call.o, mirror.twin_of(reference.o));
  LONGSPAN_TRY(call.lse, mirror.twin_of(reference.lse));
  LONGSPAN_TRY(call.terms, score_terms(inputs, mirror));
  LONGSPAN_TRY(call.max_logit, mirror.twin_of(reference.max_logit));
  LONGSPAN_CHECK_OK(in_parts(problem, tiles, progress, "check forward", [&](auto part) -> Status {
    LONGSPAN_TRY(const auto staged, forward.plan->stage(part));
    call.tiles = part;
    call.staged = staged.get();
    LONGSPAN_CHECK_OK(forward.plan->forward(call, forward.workspace()));
    return synchronize(device, call.stream);
  }));
  LONGSPAN_CHECK_OK(mirror.download());
  add_sink(inputs, reference);
  return {};
}

Status run_backward(const Inputs& inputs, std::span<const PlacedTile> tiles, const Device& device,
                    Progress& progress, Reference& reference) {
  const Problem& problem = inputs.problem;
  const Tensor delta = make_delta(inputs, reference.o);
  LONGSPAN_TRY(const Prepared backward, prepare(problem, Direction::kBackward, device));
  Mirror mirror(device);
  BackwardTiles call{.scale = problem.scale};
  LONGSPAN_TRY(call.q, mirror.copy_of(inputs.q.view));
  LONGSPAN_TRY(call.k, mirror.copy_of(inputs.k.view));
  LONGSPAN_TRY(call.v, mirror.copy_of(inputs.v.view));
  LONGSPAN_TRY(call.dout, mirror.copy_of(inputs.dout.view));
  LONGSPAN_TRY(call.lse, mirror.copy_of(reference.lse.view));
  LONGSPAN_TRY(call.delta, mirror.copy_of(delta.view));
  LONGSPAN_TRY(call.dq, mirror.twin_of(reference.dq));
  LONGSPAN_TRY(call.dk, mirror.twin_of(reference.dk));
  LONGSPAN_TRY(call.dv, mirror.twin_of(reference.dv));
  LONGSPAN_TRY(call.terms, score_terms(inputs, mirror));
  LONGSPAN_TRY(call.dbias, mirror.twin_of(reference.dbias));
  LONGSPAN_CHECK_OK(in_parts(problem, tiles, progress, "check backward", [&](auto part) -> Status {
    LONGSPAN_TRY(const auto staged, backward.plan->stage(part));
    call.tiles = part;
    call.staged = staged.get();
    LONGSPAN_CHECK_OK(backward.plan->backward(call, backward.workspace()));
    return synchronize(device, call.stream);
  }));
  LONGSPAN_CHECK_OK(mirror.download());
  add_sink_gradient(inputs, delta, reference);
  return {};
}

}  // namespace

Result<Reference> compute_reference(const Inputs& inputs, const Device& device, Progress& progress,
                                    bool forward_only) {
  const Problem& problem = inputs.problem;
  LONGSPAN_CHECK_OK(
      fits_in_memory(reference_bytes(problem), "the float64 check (see --check none)"));
  Reference reference = empty_reference(problem, forward_only);
  const std::vector<PlacedTile> tiles = make_tiles(problem);
  LONGSPAN_CHECK_OK(run_forward(inputs, tiles, device, progress, reference));
  if (!forward_only) {
    LONGSPAN_CHECK_OK(run_backward(inputs, tiles, device, progress, reference));
  }
  return reference;
}

}  // namespace longspan::tool
