// The store of the process: what may be named, and what the provider makes of it.
#include "providers/prepared/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "longspan/libraries.h"
#include "providers/prepared/prepared.h"
#include "providers/prepared/sha256.h"
#include "scene.h"

namespace longspan::prepared::testing {
namespace {

using ::testing::HasSubstr;

std::string identity(const char* problem, Direction direction) {
  return kPrepared.identity(parse_problem(problem).value(), direction, h200()).value();
}

/// One test: a process has one store.
TEST(PreparedStore, IsNamedBeforeItIsUsedAndOnlyOnce) {
  const Status nowhere = set_prepared_store("/nowhere");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(nowhere.error().message, HasSubstr("run longspan prepare --out /nowhere"));
  const Verdict none = kPrepared.consider(problem(), h200());
  ASSERT_NE(declined(none), nullptr);
  EXPECT_THAT(declined(none)->detail, HasSubstr("no store of prepared kernels is named"));

  const DoubleStore damaged;
  damaged.write("build.json", "{\"format\": 1}");
  const Status wrong = set_prepared_store(damaged.folder());
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(wrong.error().message, HasSubstr("build.json has format 1"));
  const DoubleStore other;
  ASSERT_TRUE(set_prepared_store(other.folder()).ok());  // and not used

  DoubleStore folder;
  const json full = forward_manifest("full", "full", "full", kForwardFull);
  folder.add(full);
  folder.add(forward_manifest("causal", "causal", "causal", kForwardFull));
  ASSERT_TRUE(set_prepared_store(folder.folder()).ok());
  const Verdict verdict = kPrepared.consider(problem(), h200());
  ASSERT_EQ(declined(verdict), nullptr) << declined(verdict)->detail;
  const Offer& offer = std::get<Offer>(verdict);
  EXPECT_EQ(offer.detail, "prepared:fa4, causal and 1 more of " + folder.folder());
  EXPECT_TRUE(offer.partials_16bit);

  const std::string sum = full["library"]["sha256"].get<std::string>() + "\n";
  const char* const served = "dtype=bf16 heads=4/2 dim=16 lengths=100 mask=causal";
  EXPECT_EQ(identity(served, Direction::kForward), sha256_of_text(sum + sum));
  EXPECT_EQ(identity(served, Direction::kBackward), sha256_of_text(""));
  EXPECT_EQ(identity("dtype=bf16 heads=4/2 dim=24 lengths=100 mask=causal", Direction::kForward),
            sha256_of_text(""));

  EXPECT_THAT(set_prepared_store(other.folder()).error().message, HasSubstr("is in use"));
  EXPECT_TRUE(set_prepared_store(folder.folder()).ok());
}

}  // namespace
}  // namespace longspan::prepared::testing
