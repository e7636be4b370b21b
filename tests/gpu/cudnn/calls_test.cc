// cudnn's plans: capture and replay, graphs that are made once, bits that repeat, refused calls.
#include "gpu/cudnn/calls.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/cudnn/against_host.h"
#include "providers/cudnn/cudnn.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/graph_cache.h"
#include "providers/cudnn/plan.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

Case dense_case() {
  Case c = make_case(333, 333, 128, 128);
  c.tiles = {make_placed(0, 333, 0, 333, kCausal)};
  return c;
}

Case packed_case(int64_t dim_qk, int64_t dim_v) {
  Case c = make_case(500, 500, dim_qk, dim_v);
  int64_t row = 0;
  for (const int64_t length : {90, 0, 3, 150, 64, 150}) {
    c.tiles.push_back(make_placed(row, length, row, length, kCausal));
    row += length + 4;
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

void expect_same(const Case& c, const Outcome& value, const Outcome& expected) {
  constexpr double kNothing = 1e30;  // for NaN, which rows of no tile may hold
  const auto numbers = [](const Tensor& t) {
    std::vector<double> values = t.values();
    for (double& x : values) x = std::isnan(x) ? kNothing : x;
    return values;
  };
  EXPECT_EQ(numbers(value.carry.o), numbers(expected.carry.o)) << c.text();
  EXPECT_EQ(numbers(value.carry.lse), numbers(expected.carry.lse)) << c.text();
  EXPECT_EQ(numbers(value.gradients.dk), numbers(expected.gradients.dk)) << c.text();
  // Sums of other orders, rounded to 16 bits.
  const auto close = [&](const Tensor& a, const Tensor& b) {
    std::vector<double> values = numbers(a);
    std::vector<double> wanted = numbers(b);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == kNothing && wanted[i] == kNothing) values[i] = wanted[i] = 0;
    }
    return relative_rms(values, wanted) < 1e-3;
  };
  EXPECT_TRUE(close(value.gradients.dq, expected.gradients.dq)) << c.text();
  EXPECT_TRUE(close(value.gradients.dv, expected.gradients.dv)) << c.text();
}

/// Captured right after stage(): nothing of these graphs may have run before. Replays take what the
/// inputs hold by then.
void check_replay(const Case& c, uint64_t seed) {
  Inputs in = make_inputs(c, seed);
  Compared r = compute_exact(c, in);
  Outcome results = empty_results(c);
  const auto stream = cuda::OwnedStream::make();
  ASSERT_TRUE(stream.ok());
  const auto native = static_cast<cudaStream_t>(stream->get().handle);
  Calls calls(c, in, results, r.lse, r.delta, stream->get());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Status captured = calls.enqueue();
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  ASSERT_TRUE(captured.ok()) << captured.error().text();
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int round = 0; round < 3; ++round) {
    compute_device(c, in, r);
    const Outcome fresh_results = empty_results(c);
    copy_values(results.carry.o, fresh_results.carry.o);
    copy_values(results.carry.lse, fresh_results.carry.lse);
    copy_values(results.gradients.dq, fresh_results.gradients.dq);
    copy_values(results.gradients.dk, fresh_results.gradients.dk);
    copy_values(results.gradients.dv, fresh_results.gradients.dv);
    ASSERT_TRUE(calls.upload().ok());
    ASSERT_EQ(cudaGraphLaunch(executable, native), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(native), cudaSuccess);
    const Status copied = calls.copy_back();
    ASSERT_TRUE(copied.ok()) << copied.error().text();
    expect_same(c, results, r.device);
    const Inputs fresh = make_inputs(c, seed + 100 + static_cast<uint64_t>(round));
    copy_values(in.q, fresh.q);
    copy_values(in.v, fresh.v);
    copy_values(in.dout, fresh.dout);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST(CudnnCalls, CapturedAfterStageAndReplayed) {
  // Dims of no other test.
  Case dense = make_case(333, 333, 112, 112);
  dense.tiles = {make_placed(0, 333, 0, 333, kCausal)};
  check_replay(dense, 1);
  check_replay(packed_case(48, 48), 3);
  Case full = make_case(130, 333, 176, 176);
  full.tiles = {make_placed(0, 130, 0, 333, kFull)};
  check_replay(full, 7);
  for (Case whole : {dense, packed_case(48, 48), full}) {
    whole.problem.features.whole = true;
    check_replay(whole, 11);
  }
}

TEST(CudnnCalls, RefusesWhatWasNotStaged) {
  const Case c = dense_case();
  const Inputs in = make_inputs(c, 1);
  const Compared r = compute_both(c, in);
  const auto stream = cuda::OwnedStream::make();
  Calls calls(c, in, r.device, r.lse, r.delta, stream->get());
  const Staged* const staged = calls.forward_call().staged;
  calls.forward_call().staged = nullptr;
  EXPECT_THAT(calls.forward().error().message,
              HasSubstr("1 tiles were not staged, the first of 333"));
  calls.forward_call().staged = staged;
  const std::vector<PlacedTile> others = {make_placed(0, 300, 0, 333, kCausal)};
  calls.forward_call().tiles = others;
  EXPECT_THAT(calls.forward().error().message, HasSubstr("not those of the call"));
}

TEST(CudnnCalls, NoGraphIsMadeDuringCapture) {
  Case c = dense_case();
  c.gap = 8;  // in strides that stage() cannot know
  const Inputs in = make_inputs(c, 1);
  const Outcome results{empty_carry(c, DType::kF32), zero_gradients(c, DType::kF32)};
  const Tensor lse({.rows = 333, .heads = 4});
  const auto stream = cuda::OwnedStream::make();
  const auto native = static_cast<cudaStream_t>(stream->get().handle);
  Calls calls(c, in, results, lse, lse, stream->get());
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Status refused = calls.forward();
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(native, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("no graph yet for forward bf16 heads 4/2 dim 128"));
  EXPECT_TRUE(calls.forward().ok());  // made now
  EXPECT_EQ(cudaStreamSynchronize(native), cudaSuccess);
}

TEST(CudnnCalls, DeterministicBackwardRepeatsItsBits) {
  for (const Case& base : {dense_case(), packed_case(128, 128)}) {
    Case c = base;
    c.problem.features.deterministic = true;
    const Inputs in = make_inputs(c, 12);
    Compared r = compute_both(c, in);
    expect_close(c, r, 1.35);
    for (int round = 0; round < 5; ++round) {
      Gradients again = zero_gradients(c, DType::kF32);
      backward(kCudnn, lane_device(1), c, in, c.tiles, r.lse, r.delta, again);
      EXPECT_EQ(again.dq.values(), r.device.gradients.dq.values());
      EXPECT_EQ(again.dk.values(), r.device.gradients.dk.values());
      EXPECT_EQ(again.dv.values(), r.device.gradients.dv.values());
    }
  }
}

TEST(CudnnCalls, RandomPackingsMakeFewGraphs) {
  std::mt19937_64 random(6);
  TileProblem problem = make_case(8192, 8192, 128, 128).problem;
  const int64_t before = cudnn::graphs_built();
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    problem.direction = direction;
    const auto plan = kCudnn.prepare(problem, lane_device(1)).value();
    for (int round = 0; round < 100; ++round) {
      std::vector<PlacedTile> tiles;
      for (int64_t row = 0; tiles.size() < 40;) {
        const int64_t length = pick(random, 1, 200);
        tiles.push_back(make_placed(row, length, row, length, kCausal));
        row += length;
      }
      const auto staged = plan->stage(tiles);
      ASSERT_TRUE(staged.ok()) << staged.error().text();
    }
  }
  EXPECT_LE(cudnn::graphs_built() - before, 20);
}

/// For tests of acceptance without a device.
TEST(CudnnCalls, RecordsTheDevice) {
  const auto properties = cudnn::device_properties(lane_device(1).ordinal);
  ASSERT_TRUE(properties.ok()) << properties.error().text();
  const char* const out = std::getenv("OUT");
  if (out != nullptr) std::ofstream(std::string(out) + "/h200_properties.json") << *properties;
  TileProblem problem = dense_case().problem;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    problem.direction = direction;
    const auto groups = cudnn::make_groups(problem, dense_case().tiles);
    const cudnn::GraphKey key = cudnn::packed_key(problem, groups.at(0), true, 0);
    const auto support = cudnn::check_support(key, *properties);
    ASSERT_TRUE(support.ok()) << support.error().text();
    EXPECT_TRUE(support->accepted) << support->message;
    const auto graphs = cudnn::make_graphs({&key, 1});
    ASSERT_TRUE(graphs.ok()) << graphs.error().text();
    EXPECT_EQ((*graphs)[0]->plan_name(), support->plan_name);
    std::printf("%s: %s, %zu bytes of workspace\n", cudnn::text(key).c_str(),
                support->plan_name.c_str(), (*graphs)[0]->workspace_bytes());
  }
}

}  // namespace
}  // namespace longspan::testing
