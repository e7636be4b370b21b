#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "longspan/libraries.h"
#include "providers/cudnn/cudnn.h"

namespace longspan {
namespace {

TEST(CudnnNotBuilt, DeclinesAndNamesTheRemedy) {
  const Verdict verdict = kCudnn.consider({}, cpu_device(1));
  ASSERT_NE(declined(verdict), nullptr);
  EXPECT_EQ(declined(verdict)->code, DeclineCode::kNotBuilt);
  EXPECT_THAT(declined(verdict)->detail, ::testing::HasSubstr("LONGSPAN_CUDNN_FRONTEND"));
  const auto plan = kCudnn.prepare({}, cpu_device(1));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(set_cudnn_path("/usr/lib").ok());
}

}  // namespace
}  // namespace longspan
