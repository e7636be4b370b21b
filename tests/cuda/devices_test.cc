// What is said on a machine without GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "longspan/device.h"

namespace longspan {
namespace {

TEST(CudaDevices, WhereThereAreNoneWhatIsNeededIsSaid) {
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);  // read at the first question
  for (const Error& error : {cuda_device_count().error(), cuda_device(0).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, ::testing::HasSubstr("a driver for CUDA 13.0 or newer"));
    EXPECT_THAT(error.message, ::testing::HasSubstr("or the device cpu"));
  }
}

}  // namespace
}  // namespace longspan
