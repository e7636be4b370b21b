// A build without prepared says so, and how to get one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "longspan/libraries.h"
#include "providers/prepared/prepared.h"

namespace longspan {
namespace {

TEST(PreparedNotBuilt, DeclinesWithTheRemedy) {
  const Verdict verdict = kPrepared.consider({}, {});
  const Decline* const decline = declined(verdict);
  ASSERT_NE(decline, nullptr);
  EXPECT_EQ(decline->code, DeclineCode::kNotBuilt);
  EXPECT_THAT(decline->detail, ::testing::HasSubstr("LONGSPAN_CUDA=ON"));
  EXPECT_FALSE(kPrepared.prepare({}, {}).ok());
  EXPECT_FALSE(set_prepared_store("/store").ok());
}

}  // namespace
}  // namespace longspan
