// prepared's plans: capture and replay with other inputs, refusals, no Python.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device_tensors.h"
#include "gpu/graph.h"
#include "gpu/prepared/scene.h"
#include "providers/lane.h"
#include "providers/prepared/prepared.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

constexpr Band kCausal{-kUnbounded, 0};

/// Whole results of both directions, backward from O, on device copies of a case's tensors.
class Calls {
 public:
  Calls(const Case& c, const Inputs& in, const Outcome& results, Stream stream) : tiles_(c.tiles) {
    TileProblem problem = c.problem;
    forward_plan_ = kPrepared.prepare(problem, lane_device(1)).value();
    forward_staged_ = forward_plan_->stage(tiles_).value();
    problem.direction = Direction::kBackward;
    backward_plan_ = kPrepared.prepare(problem, lane_device(1)).value();
    backward_staged_ = backward_plan_->stage(tiles_).value();
    const size_t bytes =
        std::max(forward_plan_->workspace_bytes(), backward_plan_->workspace_bytes());
    scratch_ = GuardedMemory::poisoned(bytes).value();
    workspace_ = {scratch_.data(), bytes};
    forward_ = {.q = input(in.q),
                .k = input(in.k),
                .v = input(in.v),
                .o = output(results.carry.o),
                .lse = output(results.carry.lse),
                .tiles = tiles_,
                .scale = c.scale,
                .stream = stream,
                .staged = forward_staged_.get()};
    backward_ = {.q = forward_.q,
                 .k = forward_.k,
                 .v = forward_.v,
                 .dout = input(in.dout),
                 .lse = forward_.lse,
                 .o = forward_.o,
                 .dq = output(results.gradients.dq),
                 .dk = output(results.gradients.dk),
                 .dv = output(results.gradients.dv),
                 .tiles = tiles_,
                 .scale = c.scale,
                 .stream = stream,
                 .staged = backward_staged_.get()};
  }

  ForwardTiles& forward_call() { return forward_; }
  Workspace& workspace() { return workspace_; }
  Status forward() const { return forward_plan_->forward(forward_, workspace_); }
  Status backward() const { return backward_plan_->backward(backward_, workspace_); }
  Status both() const {
    LONGSPAN_CHECK_OK(forward());
    return backward();
  }
  Status upload() { return tensors_.upload(); }
  Status copy_back() { return tensors_.copy_back(); }

 private:
  TensorView input(const Tensor& host) { return tensors_.input("input", host.view()).value(); }
  TensorView output(const Tensor& host) { return tensors_.output("output", host.view()).value(); }

  std::vector<PlacedTile> tiles_;
  std::shared_ptr<const Plan> forward_plan_, backward_plan_;
  std::shared_ptr<const Staged> forward_staged_, backward_staged_;
  GuardedMemory scratch_;
  DeviceTensors tensors_;
  Workspace workspace_;
  ForwardTiles forward_;
  BackwardTiles backward_;
};

Case dense_case() {
  Case c = make_case(333, 333, 128, 128);
  c.problem.features.whole = true;
  c.tiles = {make_placed(0, 333, 0, 333, kCausal)};
  return c;
}

Case packed_case() {
  Case c = make_case(500, 500, 128, 128);
  c.problem.features.whole = true;
  int64_t row = 0;
  for (const int64_t length : {90, 3, 150, 64, 150}) {
    c.tiles.push_back(make_placed(row, length, row, length, kCausal));
    row += length;
  }
  return c;
}

void copy_values(Tensor& to, const Tensor& from) {
  for (int64_t row = 0; row < to.shape().rows; ++row) {
    for (int64_t h = 0; h < to.shape().heads; ++h) {
      for (int64_t i = 0; i < to.shape().dim; ++i) to.set(row, h, i, from.get(row, h, i));
    }
  }
}

/// Results become NaN, inputs others.
void change(Inputs& in, Outcome& results, const Case& c, uint64_t seed) {
  const Inputs fresh = make_inputs(c, seed);
  copy_values(in.q, fresh.q);
  copy_values(in.k, fresh.k);
  copy_values(in.v, fresh.v);
  copy_values(in.dout, fresh.dout);
  const Outcome empty = empty_results(c);
  copy_values(results.carry.o, empty.carry.o);
  copy_values(results.carry.lse, empty.carry.lse);
  copy_values(results.gradients.dq, empty.gradients.dq);
  copy_values(results.gradients.dk, empty.gradients.dk);
  copy_values(results.gradients.dv, empty.gradients.dv);
}

void check_replay(const Case& c) {
  Inputs in = make_inputs(c, 1);
  Outcome results = empty_results(c);
  const auto stream = cuda::OwnedStream::make();
  ASSERT_TRUE(stream.ok());
  Calls calls(c, in, results, stream->get());
  ASSERT_TRUE(calls.upload().ok());
  ASSERT_TRUE(calls.both().ok());  // warm
  const Graph graph(stream->get(), [&] { return calls.both(); });
  for (uint64_t seed = 30; seed < 33; ++seed) {
    change(in, results, c, seed);
    ASSERT_TRUE(calls.upload().ok());
    graph.replay();
    const Status copied = calls.copy_back();
    ASSERT_TRUE(copied.ok()) << copied.error().text();
    Compared r = compute_exact(c, in);
    r.device = std::move(results);
    expect_right(c, r, true, 1.35);
    results = std::move(r.device);
  }
}

TEST(PreparedCalls, ReplaysTakeWhatTheInputsHold) {
  check_replay(dense_case());
  check_replay(packed_case());
}

TEST(PreparedCalls, DeterministicBackwardsRepeatTheirBits) {
  for (const int64_t group : {1, 2}) {
    Case c = make_case(500, 500, 128, 128);
    c.problem.heads_kv = 2;
    c.problem.heads_q = 2 * group;
    c.problem.group = group;
    c.problem.features.deterministic = true;
    c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(300, 200, 310, 180, {})};
    const Inputs in = make_inputs(c, 12);
    Compared r = compute_exact(c, in);
    compute_prepared(c, in, Given::kDelta, true, r);
    expect_right(c, r, true, 1);
    for (int round = 0; round < 5; ++round) {
      Compared again{{empty_carry(c, DType::kF32), zero_gradients(c, DType::kF32)},
                     {empty_carry(c, DType::kF32), zero_gradients(c, DType::kF32)},
                     r.lse.copy(r.lse.shape()),
                     r.delta.copy(r.delta.shape())};
      compute_prepared(c, in, Given::kDelta, true, again);
      EXPECT_EQ(again.device.gradients.dq.values(), r.device.gradients.dq.values());
      EXPECT_EQ(again.device.gradients.dk.values(), r.device.gradients.dk.values());
      EXPECT_EQ(again.device.gradients.dv.values(), r.device.gradients.dv.values());
    }
  }
}

TEST(PreparedCalls, RefusesWhatDoesNotFit) {
  const Case c = dense_case();
  const Inputs in = make_inputs(c, 1);
  const Outcome results = empty_results(c);
  const auto stream = cuda::OwnedStream::make();
  Calls calls(c, in, results, stream->get());
  const Staged* const staged = calls.forward_call().staged;
  calls.forward_call().staged = nullptr;
  EXPECT_THAT(calls.forward().error().message, HasSubstr("1 tiles were not staged"));
  calls.forward_call().staged = staged;
  const std::vector<PlacedTile> others = {make_placed(0, 300, 0, 333, kCausal)};
  const auto tiles = std::exchange(calls.forward_call().tiles, others);
  EXPECT_THAT(calls.forward().error().message, HasSubstr("not those of the call"));
  calls.forward_call().tiles = tiles;
  --calls.workspace().bytes;
  EXPECT_THAT(calls.backward().error().message, HasSubstr("are needed"));
}

TEST(PreparedCalls, ThereIsNoPythonInTheProcess) {
  check_replay(dense_case());
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "Py_IsInitialized"), nullptr);
}

}  // namespace
}  // namespace longspan::testing
