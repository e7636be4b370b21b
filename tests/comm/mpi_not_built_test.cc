#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "longspan/communicator.h"

namespace longspan {
namespace {

TEST(Mpi, RefusalNamesTheOption) {
  const auto made = make_mpi_communicator();
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(made.error().message, ::testing::HasSubstr("-DLONGSPAN_MPI=ON"));
}

}  // namespace
}  // namespace longspan
