#include "gpu/hopper/timed_call.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/half.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

TileProblem problem_of(const Sizes& sizes, Direction direction,
                       const std::vector<PlacedTile>& tiles, bool whole) {
  TileProblem p{.direction = direction,
                .dtype = DType::kBF16,
                .heads_q = sizes.heads_q,
                .heads_kv = sizes.heads_kv,
                .group = sizes.heads_q / sizes.heads_kv,
                .dim_qk = sizes.dims.qk,
                .dim_v = sizes.dims.v};
  for (const PlacedTile& t : tiles) {
    p.capacity_q = std::max(p.capacity_q, t.q_row + t.tile.q.size());
    p.capacity_k = std::max(p.capacity_k, t.k_row + t.tile.k.size());
  }
  p.features.whole = whole;
  return p;
}

void run_for(std::chrono::milliseconds time, const Call& call, Stream stream) {
  constexpr int kAtOnce = 4;
  for (const auto begin = Clock::now(); Clock::now() - begin < time;) {
    for (int i = 0; i < kAtOnce; ++i) call();
    must(cuda::synchronize(stream));
  }
}

}  // namespace

cuda::Memory random_rows(int64_t elements, uint32_t seed) {
  constexpr int64_t kPeriod = 1'048'583;
  std::vector<uint16_t> values(static_cast<size_t>(std::min(elements, kPeriod)));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (uint16_t& value : values) value = float_to_bf16(normal(random));
  const size_t bytes = static_cast<size_t>(elements) * sizeof(uint16_t);
  cuda::Memory rows = must(cuda::Memory::make(bytes));
  auto* const to = static_cast<std::byte*>(rows.data());
  size_t done = values.size() * sizeof(uint16_t);
  must(cuda::copy(to, values.data(), done));
  while (done < bytes) {
    const size_t next = std::min(done, bytes - done);
    must(cuda::copy(to + done, to, next));
    done += next;
  }
  return rows;
}

std::vector<PlacedTile> pack(const std::vector<Sequence>& sequences) {
  std::vector<PlacedTile> tiles;
  int64_t q = 0, k = 0;
  for (const Sequence& s : sequences) {
    tiles.push_back(make_placed(q, s.queries, k, s.keys, s.band));
    q += s.queries;
    k += s.keys;
  }
  return tiles;
}

int64_t pairs_of(const std::vector<PlacedTile>& tiles) {
  int64_t pairs = 0;
  for (const PlacedTile& t : tiles) pairs += area(t.tile);
  return pairs;
}

TimedCall::TimedCall(const Sizes& sizes, Direction direction, std::vector<PlacedTile> tiles,
                     Stream stream, bool whole)
    : tiles_(std::move(tiles)), problem_(problem_of(sizes, direction, tiles_, whole)) {
  const TileProblem& p = problem_;
  plan_ = must(kHopper.prepare(p, lane_device(1)));
  staged_ = must(plan_->stage(tiles_));
  workspace_ = must(cuda::Memory::make(plan_->workspace_bytes()));
  forward_ = {.q = rows(p.capacity_q, p.heads_q, p.dim_qk),
              .k = rows(p.capacity_k, p.heads_kv, p.dim_qk),
              .v = rows(p.capacity_k, p.heads_kv, p.dim_v),
              .o = zeros(whole ? p.dtype : DType::kF32, p.capacity_q, p.heads_q, p.dim_v),
              .lse = zeros(DType::kF32, p.capacity_q, p.heads_q, 1),
              .tiles = tiles_,
              .scale = 1 / std::sqrt(static_cast<double>(p.dim_qk)),
              .stream = stream,
              .staged = staged_.get()};
  if (direction == Direction::kBackward) prepare_backward();
}

void TimedCall::prepare_backward() {
  const TileProblem& p = problem_;
  const TensorView &q = forward_.q, &k = forward_.k, &v = forward_.v;
  backward_ = {.q = q,
               .k = k,
               .v = v,
               .dout = rows(q.seq, q.heads, v.dim),
               .lse = forward_.lse,
               .o = forward_.o,
               .dq = zeros(p.dtype, q.seq, q.heads, q.dim),
               .dk = zeros(p.dtype, k.seq, k.heads, k.dim),
               .dv = zeros(p.dtype, v.seq, v.heads, v.dim),
               .tiles = tiles_,
               .scale = forward_.scale,
               .stream = forward_.stream,
               .staged = staged_.get()};
  TileProblem before = p;
  before.direction = Direction::kForward;
  const auto plan = must(kHopper.prepare(before, lane_device(1)));
  const auto staged = must(plan->stage(tiles_));
  const cuda::Memory workspace = must(cuda::Memory::make(plan->workspace_bytes()));
  forward_.staged = staged.get();
  must(plan->forward(forward_, {workspace.data(), workspace.size()}));
  must(cuda::synchronize(forward_.stream));
  forward_.staged = nullptr;
}

TensorView TimedCall::rows(int64_t count, int64_t heads, int64_t dim) {
  const auto seed = static_cast<uint32_t>(memory_.size());
  memory_.push_back(random_rows(count * heads * dim, seed));
  return packed_view(memory_.back().data(), DType::kBF16, count, heads, dim);
}

TensorView TimedCall::zeros(DType dtype, int64_t count, int64_t heads, int64_t dim) {
  const auto bytes = static_cast<size_t>(count * heads * dim * size_of(dtype));
  memory_.push_back(must(cuda::Memory::make(bytes)));
  must(cuda::fill(memory_.back().data(), 0, bytes));
  return packed_view(memory_.back().data(), dtype, count, heads, dim);
}

void TimedCall::operator()() const {
  const Workspace workspace{workspace_.data(), workspace_.size()};
  const bool forward = problem_.direction == Direction::kForward;
  must(forward ? plan_->forward(forward_, workspace) : plan_->backward(backward_, workspace));
}

double TimedCall::tflops(double microseconds) const {
  const TileProblem& p = problem_;
  const bool forward = p.direction == Direction::kForward;
  const int64_t columns = forward ? p.dim_qk + p.dim_v : 3 * p.dim_qk + 2 * p.dim_v;
  const auto work =
      2.0 * static_cast<double>(columns * p.heads_q) * static_cast<double>(pairs_of(tiles_));
  return work / microseconds / 1e6;
}

Paired settled(const Call& ours, const Call& other, Stream stream) {
  constexpr std::chrono::milliseconds kSettled(150);
  run_for(kSettled, ours, stream);
  run_for(kSettled, other, stream);
  return paired(ours, other, static_cast<cudaStream_t>(stream.handle));
}

}  // namespace longspan::testing
