// The place that cuda/reference keeps in builds without CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "providers/cuda/reference.h"
#include "providers/support.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

TEST(CudaNotBuilt, DeclineAndErrorsNameTheOption) {
  const TileProblem problem = one_tile(4, 4, {}).problem;
  Device device;
  device.name = "cuda:0";
  device.ordinal = 0;
  device.capability = 90;
  for (const Device& asked : {device, cpu_device(1)}) {
    const Verdict verdict = kCudaReference.consider(problem, asked);
    ASSERT_NE(declined(verdict), nullptr);
    EXPECT_EQ(declined(verdict)->code, DeclineCode::kNotBuilt);
    EXPECT_THAT(declined(verdict)->detail, HasSubstr("-DLONGSPAN_CUDA=ON"));
    const auto plan = kCudaReference.prepare(problem, asked);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(plan.error().message, HasSubstr("-DLONGSPAN_CUDA=ON"));
    const Status status = attend_tiles(kCudaReference, asked, problem, ForwardTiles{});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("-DLONGSPAN_CUDA=ON"));
  }
}

}  // namespace
}  // namespace longspan::testing
