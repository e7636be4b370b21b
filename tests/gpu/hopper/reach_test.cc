// Backward at 512 columns over long sequences, as the engine runs it: the memory that it takes, and
// sampled rows against float64.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/half.h"
#include "gpu/hopper/timed_call.h"
#include "longspan/engine.h"
#include "providers/cuda/reference.h"
#include "providers/cuda/reference_kernels.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr int64_t kDim = 512, kHeadsQ = 16, kHeadsKv = 8;
constexpr int64_t kSamples[] = {1500, 8191, 16384, 30001, 65535, 65536, 98304, 131071};

size_t free_bytes() {
  size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total));
  return free;
}

/// One causal sequence on one rank: its tensors, and the engine's call of them.
class LongCall {
 public:
  explicit LongCall(int64_t tokens) : tokens_(tokens), scale_(1 / std::sqrt(double{kDim})) {
    for (TensorView* view : {&q, &o, &dout, &dq}) *view = random(kHeadsQ);
    for (TensorView* view : {&k, &v, &dk, &dv}) *view = random(kHeadsKv);
    lse = add(DType::kF32, kHeadsQ, 1);
  }

  void prepare() {
    const Routing hopper{RoutingMode::kRequire, "hopper"};
    const Device device = lane_device(1);
    auto group = must(make_peer_communicators(Topology::blocks(1, 1), {&device, 1}));
    engine_ = must(Engine::create({.forward = {.routing = hopper}, .backward = {.routing = hopper}},
                                  group.front(), device));
    call_ = must(engine_->prepare(
        must(parse_problem(fmt::format("dtype=bf16 heads={}/{} dim={} lengths={} mask=causal",
                                       kHeadsQ, kHeadsKv, kDim, tokens_)))));
    for (const BufferSpec& buffer : call_->saved_layout()) {
      if (!buffer.alias.empty()) continue;
      saved_memory_.push_back(must(cuda::Memory::make(bytes_of(buffer))));
      saved_.push_back(saved_memory_.back().data());
    }
  }
  size_t workspace_bytes() const { return call_->workspace_bytes(Direction::kBackward); }

  void forward() {
    const cuda::Memory memory =
        must(cuda::Memory::make(call_->workspace_bytes(Direction::kForward)));
    Stream stream = stream_.get();
    must(engine_->forward(*call_, {.q = q, .k = k, .v = v, .o = o, .lse = lse, .scale = scale_},
                          saved_, {memory.data(), memory.size()}, stream));
    must(engine_->synchronize(stream));
  }
  void make_workspace() { workspace_ = must(cuda::Memory::make(workspace_bytes())); }
  void backward() {
    Stream stream = stream_.get();
    must(engine_->backward(*call_,
                           {.q = q,
                            .k = k,
                            .v = v,
                            .o = o,
                            .lse = lse,
                            .dout = dout,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .scale = scale_},
                           saved_, {workspace_.data(), workspace_.size()}, stream));
  }
  void run() {
    prepare();
    forward();
    make_workspace();
    backward();
    must(cuda::synchronize_device());
  }
  double milliseconds(int times) {
    Stopwatch watch(static_cast<cudaStream_t>(stream_.get().handle));
    return watch.time([this] { backward(); }, times) / 1000;
  }
  double scale() const { return scale_; }
  int64_t tokens() const { return tokens_; }

  TensorView q, k, v, o, lse, dout, dq, dk, dv;

 private:
  static size_t bytes_of(const BufferSpec& buffer) {
    int64_t elements = 1;
    for (const int64_t extent : buffer.shape) elements *= extent;
    return static_cast<size_t>(elements * size_of(buffer.dtype));
  }
  TensorView random(int64_t heads) {
    const auto seed = static_cast<uint32_t>(memory_.size());
    memory_.push_back(random_rows(tokens_ * heads * kDim, seed));
    return packed_view(memory_.back().data(), DType::kBF16, tokens_, heads, kDim);
  }
  TensorView add(DType dtype, int64_t heads, int64_t dim) {
    const auto bytes = static_cast<size_t>(tokens_ * heads * dim * size_of(dtype));
    memory_.push_back(must(cuda::Memory::make(bytes)));
    return packed_view(memory_.back().data(), dtype, tokens_, heads, dim);
  }

  int64_t tokens_;
  double scale_;
  std::vector<cuda::Memory> memory_, saved_memory_;
  cuda::OwnedStream stream_ = must(cuda::OwnedStream::make());
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const longspan::Call> call_;
  Saved saved_;
  cuda::Memory workspace_;
};

TEST(HopperReach, BackwardOf65536TokensTakesAGibibyteAtMost) {
  constexpr size_t kMost = size_t{1} << 30;
  LongCall(1024).run();  // loads kernels
  LongCall call(65536);
  const size_t before = free_bytes();
  call.run();
  const size_t taken = before - free_bytes();
  fmt::print(
      "backward, 512 columns, 65536 tokens: workspace {} bytes, taken of the device {} (at most "
      "{}), {:.1f} ms\n",
      call.workspace_bytes(), taken, kMost, call.milliseconds(3));
  EXPECT_LE(call.workspace_bytes(), kMost);
  EXPECT_LE(taken, kMost);
}

/// Rows of float64 that are computed of a call's tensors for the sampled tokens alone.
class ExactRows {
 public:
  explicit ExactRows(const LongCall& call) : call_(call) {
    for (const int64_t row : kSamples) {
      const int64_t behind = call.tokens() - row;
      queries_.push_back(make_placed(row, 1, 0, row + 1, {}));
      keys_.push_back(make_placed(row, behind, row, 1, {}));
    }
    compute_forward();
    compute_backward();
  }
  TensorView o, lse, dq, dk, dv;

 private:
  TensorView add(int64_t heads, int64_t dim) {
    const auto bytes = static_cast<size_t>(call_.tokens() * heads * dim) * sizeof(double);
    memory_.push_back(must(cuda::Memory::make(bytes)));
    must(cuda::fill(memory_.back().data(), 0, bytes));
    return packed_view(memory_.back().data(), DType::kF64, call_.tokens(), heads, dim);
  }
  TileProblem problem(Direction direction) const {
    return {.direction = direction,
            .dtype = DType::kBF16,
            .heads_q = kHeadsQ,
            .heads_kv = kHeadsKv,
            .group = kHeadsQ / kHeadsKv,
            .dim_qk = kDim,
            .dim_v = kDim,
            .capacity_q = call_.tokens(),
            .capacity_k = call_.tokens()};
  }
  void compute_forward() {
    o = add(kHeadsQ, kDim);
    lse = add(kHeadsQ, 1);
    const auto rows = must(cuda::DeviceRows::make(queries_, cuda::Written::kQueryRows));
    must(cuda::launch_fill(lse, rows, -INFINITY, stream_.get()));
    const auto plan = must(kCudaReference.prepare(problem(Direction::kForward), lane_device(1)));
    const auto staged = must(plan->stage(queries_));
    must(plan->forward({.q = call_.q,
                        .k = call_.k,
                        .v = call_.v,
                        .o = o,
                        .lse = lse,
                        .tiles = queries_,
                        .scale = call_.scale(),
                        .stream = stream_.get(),
                        .staged = staged.get()},
                       {}));
    must(cuda::synchronize(stream_.get()));
  }
  /// By the parts of the reference, as each sample needs one of them.
  void compute_backward() {
    dq = add(kHeadsQ, kDim);
    dk = add(kHeadsKv, kDim);
    dv = add(kHeadsKv, kDim);
    const TileProblem p = problem(Direction::kBackward);
    BackwardTiles call{.q = call_.q,
                       .k = call_.k,
                       .v = call_.v,
                       .dout = call_.dout,
                       .lse = call_.lse,
                       .delta = add(kHeadsQ, 1),
                       .o = call_.o,
                       .dq = dq,
                       .dk = dk,
                       .dv = dv,
                       .tiles = queries_,
                       .scale = call_.scale(),
                       .stream = stream_.get()};
    must(cuda::launch_delta(call, call.delta));
    const auto queries =
        must(cuda::DeviceTable::make(cuda::make_tile_table(queries_, cuda::Written::kQueryRows)));
    must(cuda::launch_query_gradients(p, call, queries));
    const auto keys =
        must(cuda::DeviceTable::make(cuda::make_tile_table(keys_, cuda::Written::kKeyRows)));
    call.tiles = keys_;
    must(cuda::launch_key_gradients(p, call, keys));
    must(cuda::synchronize(stream_.get()));
  }

  const LongCall& call_;
  std::vector<PlacedTile> queries_, keys_;
  std::vector<cuda::Memory> memory_;
  cuda::OwnedStream stream_ = must(cuda::OwnedStream::make());
};

template <class T>
std::vector<T> row_of(const TensorView& view, int64_t row) {
  std::vector<T> values(static_cast<size_t>(view.heads * view.dim));
  const auto* const from = static_cast<const T*>(view.data) + row * view.stride_seq;
  must(cuda::copy(values.data(), from, values.size() * sizeof(T)));
  return values;
}

void expect_rows(const char* name, const TensorView& value, const TensorView& exact) {
  const double bar = bars(kHopper, DType::kBF16).tensors;
  double worst = 0;
  for (const int64_t row : kSamples) {
    std::vector<double> values;
    for (const uint16_t bits : row_of<uint16_t>(value, row)) values.push_back(bf16_to_float(bits));
    const double error = relative_rms(values, row_of<double>(exact, row));
    EXPECT_LT(error, bar) << name << ", row " << row;
    worst = std::max(worst, error);
  }
  fmt::print("  {}: largest relative RMS of a sampled row {:.2e} (below {:.0e})\n", name, worst,
             bar);
}

TEST(HopperReach, BackwardOf131072TokensIsRight) {
  LongCall call(131072);
  call.run();
  fmt::print("backward, 512 columns, 131072 tokens: {:.1f} ms, workspace {} bytes\n",
             call.milliseconds(2), call.workspace_bytes());
  const ExactRows exact(call);
  expect_rows("o", call.o, exact.o);
  expect_rows("dq", call.dq, exact.dq);
  expect_rows("dk", call.dk, exact.dk);
  expect_rows("dv", call.dv, exact.dv);
  for (const int64_t row : kSamples) {
    const std::vector<float> lse = row_of<float>(call.lse, row);
    const double error = lse_error({lse.begin(), lse.end()}, row_of<double>(exact.lse, row));
    EXPECT_LT(error, bars(kHopper, DType::kBF16).lse) << "lse, row " << row;
  }
}

}  // namespace
}  // namespace longspan::testing
