// Every case ends as a pass, a failure, or declined with the code that it states.
#include <gtest/gtest.h>

#include "testkit/cases.h"

namespace longspan::testkit {
namespace {

class Conformance : public testing::TestWithParam<Case> {};

TEST_P(Conformance, EndsAsStated) { expect_conforms(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Strategies, Conformance, testing::ValuesIn(strategy_cases()));
INSTANTIATE_TEST_SUITE_P(Features, Conformance, testing::ValuesIn(feature_cases()));
INSTANTIATE_TEST_SUITE_P(Options, Conformance, testing::ValuesIn(option_cases()));
INSTANTIATE_TEST_SUITE_P(Random, Conformance, testing::ValuesIn(random_cases()));
INSTANTIATE_TEST_SUITE_P(Declined, Conformance, testing::ValuesIn(declined_cases()));

}  // namespace
}  // namespace longspan::testkit
