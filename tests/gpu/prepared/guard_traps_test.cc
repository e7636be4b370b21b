// What callers promise of lengths, with prepared kernels computing: every broken promise ends a
// process of its own.
#include <gtest/gtest.h>

#include "gpu/guard_children.h"
#include "gpu/prepared/test_store.h"
#include "longspan/libraries.h"

namespace longspan::testing {
namespace {

const Lengths kFull = {70, 70};

/// Both directions of each promise, eager and in a replay.
std::vector<Breach> breaches() {
  std::vector<Breach> all;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    for (const Promise promise :
         {Promise::kUniformLengths, Promise::kCompactLengths, Promise::kPitchedAllGather}) {
      all.push_back({direction, promise, false, {70, 69}, kFull});
      all.push_back({direction, promise, true, kFull, {0, 70}});
    }
  }
  return all;
}

TEST(PreparedGuardTraps, EndEachOfTheChildren) {
  const std::vector<Breach> all = breaches();
  ASSERT_EQ(all.size(), 12u);
  expect_traps({.problem = "dtype=bf16 heads=4/2 dim=128 lengths=70,70 mask=causal "
                           "device_lengths=true",
                .full = kFull,
                .provider = "prepared",
                .open = [] { return set_prepared_store(test_store()); }},
               all);
}

}  // namespace
}  // namespace longspan::testing
