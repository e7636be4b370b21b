// Guards in trap mode, as the engine has them whoever computes.
#include <gtest/gtest.h>

#include "gpu/guard_children.h"

namespace longspan::testing {
namespace {

const Lengths kFull = {70, 45};

/// Both directions in each way.
std::vector<Breach> breaches() {
  std::vector<Breach> all;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    all.push_back({direction, std::nullopt, false, {71, 45}, kFull});
    all.push_back({direction, std::nullopt, false, kFull, {70, 46}});
    all.push_back({direction, std::nullopt, false, {70, -1}, kFull});
    all.push_back({direction, std::nullopt, true, {70, 46}, kFull});
    all.push_back({direction, Promise::kUniformLengths, false, {70, 44}, kFull});
    all.push_back({direction, Promise::kUniformLengths, true, kFull, {0, 45}});
  }
  return all;
}

TEST(GuardTraps, EndEachOfTheChildren) {
  const std::vector<Breach> all = breaches();
  ASSERT_EQ(all.size(), 12u);
  expect_traps({.problem = "dtype=bf16 heads=4/2 dim=64 lengths=70,45 mask=causal "
                           "device_lengths=true",
                .full = kFull,
                .provider = "cuda/reference"},
               all);
}

}  // namespace
}  // namespace longspan::testing
