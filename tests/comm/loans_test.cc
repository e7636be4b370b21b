// Communicators without loans say so, whichever way they are asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "longspan/communicator.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;

TEST(Loans, AreRefusedByThoseWithout) {
  const auto communicator = make_threads_communicators(Topology::blocks(2, 1))[0];
  EXPECT_FALSE(communicator->lends());
  int word = 0;
  EXPECT_THAT(communicator->lendable(&word).error().message, HasSubstr("use peer"));
  const auto loans = communicator->loans_on({}, {}, std::chrono::seconds(1));
  EXPECT_EQ(loans.error().code, ErrorCode::kUnsupported);
  for (const TransferKind kind : {TransferKind::kLend, TransferKind::kBorrow}) {
    const Transfer loan{.kind = kind, .peer = 1, .tag = 1, .data = &word, .bytes = sizeof word};
    const auto request = communicator->start({&loan, 1});
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(request.error().message, HasSubstr("transfer 0 is a loan"));
  }
}

}  // namespace
}  // namespace longspan
