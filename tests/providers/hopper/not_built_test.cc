// A build without the kernels still names the provider, and says what it lacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "providers/hopper/hopper.h"

namespace longspan {
namespace {

TEST(HopperNotBuilt, SaysHowToBuildIt) {
  const Verdict verdict = kHopper.consider({}, {});
  const Decline* const decline = declined(verdict);
  ASSERT_NE(decline, nullptr);
  EXPECT_EQ(decline->code, DeclineCode::kNotBuilt);
  EXPECT_THAT(decline->detail, ::testing::HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=90a"));
  const auto plan = kHopper.prepare({}, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace longspan
