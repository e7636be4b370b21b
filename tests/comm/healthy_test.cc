// The bodies that every communicator must pass, ranks as threads.
#include <gtest/gtest.h>

#include <tuple>

#include "comm/bodies.h"
#include "comm/ranks.h"

namespace longspan::test {
namespace {

using Case = std::tuple<Kind, int, Body>;

class Healthy : public ::testing::TestWithParam<Case> {};

TEST_P(Healthy, Passes) {
  const auto& [kind, ranks, body] = GetParam();
  run_ranks(make_ranks(kind, Topology::blocks(ranks, 2)), body.run);
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [kind, ranks, body] = info.param;
  return kind_name(kind) + "_" + std::to_string(ranks) + "_" + std::string(body.name);
}

INSTANTIATE_TEST_SUITE_P(
    All, Healthy,
    ::testing::Combine(::testing::Values(Kind::kThreads, Kind::kCallback, Kind::kComposite),
                       ::testing::Values(1, 2, 3, 4, 8),
                       ::testing::ValuesIn(healthy_bodies().begin(), healthy_bodies().end())),
    case_name);

}  // namespace
}  // namespace longspan::test
