// Finding cuDNN, where there is none to be found. One search a process.
#include "providers/cudnn/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "longspan/libraries.h"

namespace longspan::cudnn {
namespace {

using ::testing::HasSubstr;

TEST(CudnnLibrary, SaysWhatWasTriedAndWhatToDo) {
  ASSERT_TRUE(set_cudnn_path("/nowhere/libcudnn.so.9").ok());
  const auto found = library();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(found.error().message, HasSubstr("opened as /nowhere/libcudnn.so.9"));
  EXPECT_THAT(found.error().message, HasSubstr("nvidia-cudnn-cu13"));
  EXPECT_THAT(found.error().message, HasSubstr("LD_LIBRARY_PATH"));
  const Status late = set_cudnn_path("/elsewhere");
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace longspan::cudnn
