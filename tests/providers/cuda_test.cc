// What cuda/reference takes and refuses. No device is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "providers/cuda/reference.h"
#include "providers/support.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

Device pretended() {
  Device device;
  device.name = "cuda:0";
  device.ordinal = 0;
  device.multiprocessors = 132;
  device.capability = 90;
  return device;
}

void expect_decline(const TileProblem& problem, const Device& device, DeclineCode code,
                    const std::string& part) {
  const Verdict verdict = kCudaReference.consider(problem, device);
  const Decline* decline = declined(verdict);
  ASSERT_NE(decline, nullptr) << part;
  EXPECT_EQ(decline->code, code);
  EXPECT_THAT(decline->detail, HasSubstr(part));
  const auto plan = kCudaReference.prepare(problem, device);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(plan.error().message, HasSubstr(part));
}

TEST(CudaReference, OffersEveryTypeDimAndTerm) {
  TileProblem problem = one_tile(4, 4, {}).problem;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t dim : {1, 17, 576}) {
      for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
        problem.dtype = dtype;
        problem.dim_qk = dim;
        problem.dim_v = 577 - dim;
        problem.direction = direction;
        problem.features = {.window = true,
                            .softcap = true,
                            .alibi = true,
                            .bias = Bias::kBH,
                            .dropout = true,
                            .max_logit = direction == Direction::kForward,
                            .paged = direction == Direction::kForward,
                            .deterministic = true};
        EXPECT_EQ(declined(kCudaReference.consider(problem, pretended())), nullptr);
      }
    }
  }
}

TEST(CudaReference, Declines) {
  const TileProblem good = one_tile(4, 4, {}).problem;
  const auto bad = [&](DeclineCode code, const std::string& part, auto&& change) {
    TileProblem problem = good;
    change(problem);
    expect_decline(problem, pretended(), code, part);
  };
  bad(DeclineCode::kModification, "modification \"mine\") run on the host; use provider cpu/tiled",
      [](TileProblem& p) { p.features.modification = "mine"; });
  bad(DeclineCode::kFp8, "remove fp8", [](TileProblem& p) { p.features.fp8 = Fp8::kCurrent; });
  bad(DeclineCode::kPage, "forward only", [](TileProblem& p) {
    p.direction = Direction::kBackward;
    p.features.paged = true;
  });
  bad(DeclineCode::kHeadDim, "dim 577", [](TileProblem& p) { p.dim_qk = 577; });
  bad(DeclineCode::kHeads, "key head 1 of 1", [](TileProblem& p) { p.group_offset = 1; });
  bad(DeclineCode::kCapacity, "key rows", [](TileProblem& p) { p.capacity_k = int64_t{1} << 32; });
  expect_decline(good, device(1), DeclineCode::kDevice, "device cpu is not a CUDA device");
  Device older = pretended();
  older.capability = 80;
  expect_decline(good, older, DeclineCode::kDevice, "capability 8.0 of cuda:0 is not 9.0");
}

/// Views of host memory, which no call here gets far enough to read.
struct Call {
  explicit Call(Direction direction) : c(one_tile(10, 12, {})), in(make_inputs(c, 1)) {
    c.problem.direction = direction;
    plan = kCudaReference.prepare(c.problem, pretended()).value();
  }
  ForwardTiles forward() const {
    return {.q = in.q.view(),
            .k = in.k.view(),
            .v = in.v.view(),
            .o = carry.o.view(),
            .lse = carry.lse.view(),
            .tiles = c.tiles,
            .scale = c.scale};
  }
  BackwardTiles backward() const {
    return {.q = in.q.view(),
            .k = in.k.view(),
            .v = in.v.view(),
            .dout = in.dout.view(),
            .lse = carry.lse.view(),
            .delta = carry.lse.view(),
            .dq = gradients.dq.view(),
            .dk = gradients.dk.view(),
            .dv = gradients.dv.view(),
            .tiles = c.tiles,
            .scale = c.scale};
  }

  Case c;
  Inputs in;
  Carry carry = empty_carry(c, DType::kF32);
  Gradients gradients = zero_gradients(c, DType::kF32);
  std::shared_ptr<const Plan> plan;
};

void expect_invalid(const Status& status, const std::string& part) {
  ASSERT_FALSE(status.ok()) << part;
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr(part));
}

TEST(CudaReference, NeedsNoWorkspace) {
  EXPECT_EQ(Call(Direction::kForward).plan->workspace_bytes(), 0u);
  EXPECT_EQ(Call(Direction::kBackward).plan->workspace_bytes(), 0u);
}

TEST(CudaReference, RefusesCallsThatDoNotFit) {
  const Call f(Direction::kForward);
  ForwardTiles forward = f.forward();
  forward.q.dtype = DType::kF16;
  expect_invalid(f.plan->forward(forward, {}), "q is f16");
  const Call b(Direction::kBackward);
  BackwardTiles backward = b.backward();
  backward.dk.dtype = DType::kBF16;
  expect_invalid(b.plan->backward(backward, {}), "dk is bf16");
  expect_invalid(f.plan->backward(b.backward(), {}), "prepared for forward");
  expect_invalid(b.plan->forward(f.forward(), {}), "prepared for backward");
}

TEST(CudaReference, RefusesTilesThatWereNotStaged) {
  const Call f(Direction::kForward);
  expect_invalid(f.plan->forward(f.forward(), {}), "tiles are not staged");
  const Call b(Direction::kBackward);
  expect_invalid(b.plan->backward(b.backward(), {}), "tiles are not staged");
}

TEST(CudaReference, RefusesWhatOthersStaged) {
  // No tile needs no memory, so that this runs without a device.
  const Call f(Direction::kForward);
  const Call b(Direction::kBackward);
  const auto staged = f.plan->stage({}).value();
  ForwardTiles forward = f.forward();
  forward.staged = staged.get();
  expect_invalid(f.plan->forward(forward, {}), "1 tiles, but other ones (0) were staged");
  forward.tiles = {};
  EXPECT_TRUE(f.plan->forward(forward, {}).ok());
  BackwardTiles backward = b.backward();
  backward.tiles = {};
  backward.staged = staged.get();
  expect_invalid(b.plan->backward(backward, {}), "staged by another plan");
  struct Foreign final : Staged {};
  const Foreign foreign;
  forward.staged = &foreign;
  expect_invalid(f.plan->forward(forward, {}), "staged by another plan");
}

}  // namespace
}  // namespace longspan::testing
