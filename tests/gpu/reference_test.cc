// cuda/reference at the sizes that it is for, and the ways to call it.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "gpu/device_tensors.h"
#include "providers/lane.h"
#include "providers/support.h"

namespace longspan::testing {
namespace {

const Provider& on_device() { return *fixed_order_providers().front(); }

ForwardTiles forward_call(const Case& c, const Inputs& in, const Carry& carry) {
  return {.q = in.q.view(),
          .k = in.k.view(),
          .v = in.v.view(),
          .o = carry.o.view(),
          .lse = carry.lse.view(),
          .tiles = c.tiles,
          .scale = c.scale};
}

Case large_case() {
  constexpr int64_t kRows = 8192;
  Case c;
  c.problem = {.dtype = DType::kBF16,
               .heads_q = 32,
               .heads_kv = 8,
               .group = 4,
               .dim_qk = 128,
               .dim_v = 128,
               .capacity_q = kRows,
               .capacity_k = kRows};
  c.scale = 1 / std::sqrt(128.0);
  c.tiles = {make_placed(0, kRows, 0, kRows, {-kUnbounded, 0})};
  return c;
}

Status run(const Plan& plan, const ForwardTiles& call) { return plan.forward(call, {}); }
Status run(const Plan& plan, const BackwardTiles& call) { return plan.backward(call, {}); }

/// Seconds that a call takes on the device, copies apart.
template <class Tiles>
Result<double> timed(TileProblem problem, Direction direction, Tiles call) {
  problem.direction = direction;
  LONGSPAN_TRY(const auto plan, on_device().prepare(problem, lane_device(1)));
  LONGSPAN_TRY(const auto staged, plan->stage(call.tiles));
  DeviceTensors tensors;
  LONGSPAN_CHECK_OK(tensors.move(call));
  call.staged = staged.get();
  const auto begin = std::chrono::steady_clock::now();
  LONGSPAN_CHECK_OK(run(*plan, call));
  LONGSPAN_CHECK_OK(cuda::synchronize(call.stream));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  LONGSPAN_CHECK_OK(tensors.copy_back());
  return seconds.count();
}

void expect_seconds(const char* what, const Result<double>& seconds) {
  ASSERT_TRUE(seconds.ok()) << what << ": " << seconds.error().text();
  std::printf("%s: %.3f s\n", what, *seconds);
  EXPECT_LT(*seconds, 5) << what;
}

/// Elements of rows [first, first + count).
std::vector<double> rows_of(const Tensor& t, int64_t first, int64_t count) {
  std::vector<double> result;
  for (int64_t row = first; row < first + count; ++row) {
    for (int64_t head = 0; head < t.shape().heads; ++head) {
      for (int64_t i = 0; i < t.shape().dim; ++i) result.push_back(t.get(row, head, i));
    }
  }
  return result;
}

/// cpu/reference on a few rows of the large case: a query needs all its keys, a key all its queries
/// with their final LSE and delta.
void check_rows(const Case& c, const Inputs& in, const Outcome& large, const Tensor& delta,
                int64_t first) {
  constexpr int64_t kCount = 3;
  const Device host = device(0);
  const int64_t rows = c.problem.capacity_q;
  Case queries = c;
  queries.tiles = {make_placed(first, kCount, 0, rows, {-kUnbounded, first})};
  Outcome few{empty_carry(c, DType::kF64), zero_gradients(c, DType::kF64)};
  forward(reference(), host, queries, in, queries.tiles, few.carry);
  backward(reference(), host, queries, in, queries.tiles, large.carry.lse, delta, few.gradients);
  const auto check = [&](const char* what, const Tensor& all, const Tensor& expected) {
    EXPECT_LT(relative_rms(rows_of(all, first, kCount), rows_of(expected, first, kCount)), 1e-12)
        << what << " of rows from " << first;
  };
  check("o", large.carry.o, few.carry.o);
  check("lse", large.carry.lse, few.carry.lse);
  check("dq", large.gradients.dq, few.gradients.dq);
  Case keys = c;
  keys.tiles = {make_placed(0, rows, first, kCount, {-kUnbounded, -first})};
  few.gradients = zero_gradients(c, DType::kF64);
  backward(reference(), host, keys, in, keys.tiles, large.carry.lse, delta, few.gradients);
  check("dk", large.gradients.dk, few.gradients.dk);
  check("dv", large.gradients.dv, few.gradients.dv);
}

TEST(CudaReference, ChecksRealSizesInSeconds) {
  const Case c = large_case();
  const Inputs in = make_inputs(c, 1);
  Outcome r{empty_carry(c, DType::kF64), zero_gradients(c, DType::kF64)};
  expect_seconds("forward of 8192 tokens, heads 32/8, dim 128, causal",
                 timed(c.problem, Direction::kForward, forward_call(c, in, r.carry)));
  const Tensor delta = make_delta(c, in, r.carry.o, DType::kF64);
  expect_seconds("backward of the same", timed(c.problem, Direction::kBackward,
                                               BackwardTiles{.q = in.q.view(),
                                                             .k = in.k.view(),
                                                             .v = in.v.view(),
                                                             .dout = in.dout.view(),
                                                             .lse = r.carry.lse.view(),
                                                             .delta = delta.view(),
                                                             .dq = r.gradients.dq.view(),
                                                             .dk = r.gradients.dk.view(),
                                                             .dv = r.gradients.dv.view(),
                                                             .tiles = c.tiles,
                                                             .scale = c.scale}));
  for (const int64_t first : {2, 8189}) check_rows(c, in, r, delta, first);
}

TEST(CudaReference, NarrowViewsHoldTheRoundedResult) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) {
    Case c = random_case(random);
    c.tiles.resize(1);  // several would round between them
    const Inputs in = make_inputs(c, 5);
    const Outcome wide = run(on_device(), c, in, lane_device(1), DType::kF64);
    Outcome narrow{empty_carry(c, DType::kF32), zero_gradients(c, DType::kF32)};
    forward(on_device(), lane_device(1), c, in, c.tiles, narrow.carry);
    EXPECT_EQ(narrow.carry.o.values(), rounded(wide.carry.o.values(), DType::kF32)) << c.text();
    EXPECT_EQ(narrow.carry.lse.values(), rounded(wide.carry.lse.values(), DType::kF32));
    const Tensor delta = make_delta(c, in, wide.carry.o, DType::kF64);
    backward(on_device(), lane_device(1), c, in, c.tiles, wide.carry.lse, delta, narrow.gradients);
    EXPECT_EQ(narrow.gradients.dq.values(), rounded(wide.gradients.dq.values(), DType::kF32));
    EXPECT_EQ(narrow.gradients.dk.values(), rounded(wide.gradients.dk.values(), DType::kF32));
    EXPECT_EQ(narrow.gradients.dv.values(), rounded(wide.gradients.dv.values(), DType::kF32));
  }
}

TEST(CudaReference, AttendTilesIsOneWholeCallOnAnyStream) {
  const Case c = one_tile(33, 44, {-kUnbounded, 5});
  const Inputs in = make_inputs(c, 1);
  const Outcome expected = run(on_device(), c, in, lane_device(1));
  const auto own = cuda::OwnedStream::make();
  ASSERT_TRUE(own.ok()) << own.error().text();
  for (const Stream stream : {Stream{}, own->get()}) {
    Carry carry = empty_carry(c, DType::kF32);
    DeviceTensors tensors;
    ForwardTiles call = forward_call(c, in, carry);
    Status status = tensors.move(call);
    ASSERT_TRUE(status.ok()) << status.error().text();
    call.stream = stream;
    status = attend_tiles(on_device(), lane_device(1), c.problem, call);
    ASSERT_TRUE(status.ok()) << status.error().text();
    status = tensors.copy_back();
    ASSERT_TRUE(status.ok()) << status.error().text();
    EXPECT_EQ(carry.o.values(), expected.carry.o.values());
    EXPECT_EQ(carry.lse.values(), expected.carry.lse.values());
  }
}

TEST(CudaReference, GuardsNoticeWhatIsWrittenOutside) {
  Tensor tensor({.rows = 4, .heads = 2, .dim = 3, .gap = 2});
  tensor.fill(1);
  const auto writes_at = [&](int64_t element, bool output) {
    DeviceTensors tensors;
    const auto made =
        output ? tensors.output("t", tensor.view()) : tensors.input("t", tensor.view());
    const float value = 7;
    EXPECT_TRUE(made.ok());
    EXPECT_TRUE(cuda::copy(static_cast<float*>(made->data) + element, &value, sizeof value).ok());
    const Status status = tensors.copy_back();
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(writes_at(0, true), "");
  EXPECT_EQ(tensor.get(0, 0, 0), 7);
  EXPECT_EQ(writes_at(3, true), "t: memory between its rows was written");
  EXPECT_EQ(writes_at(-1, true), "t: memory before it was written");
  EXPECT_EQ(writes_at(40, true), "t: memory behind it was written");
  EXPECT_EQ(writes_at(1, false), "t is an input and was written");
}

}  // namespace
}  // namespace longspan::testing
