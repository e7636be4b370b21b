// A build without nccl says how to get it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "longspan/communicator.h"

namespace longspan::test {
namespace {

TEST(NcclNotBuilt, NamesTheRemedy) {
  for (const Error& error : {nccl_description().error(), make_nccl_id().error()}) {
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, ::testing::HasSubstr("scripts/setup.sh"));
  }
}

}  // namespace
}  // namespace longspan::test
