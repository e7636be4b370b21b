// Paged keys and values give the bits of unpaged ones.
#include "providers/pages.h"

#include <gtest/gtest.h>

#include <random>

#include "gpu/hopper/against_reference.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kCausal{-kUnbounded, 0};

TEST(HopperPages, GiveTheBitsOfUnpagedRows) {
  std::mt19937_64 random(17);
  for (const Dims dims : kKernelDims) {
    for (const int64_t page : {1, 16, 100, 256}) {
      Case c = make_case(500, 620, dims.qk, dims.v);
      c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(310, 190, 320, 300, {})};
      const Inputs in = make_inputs(c, static_cast<uint64_t>(page));
      Carry expected = empty_carry(c, DType::kF32);
      forward(kHopper, lane_device(1), c, in, c.tiles, expected);
      const int64_t used = (c.problem.capacity_k + page - 1) / page;
      for (const Memory memory : {Memory::kTokenMajor, Memory::kHeadMajor}) {
        const Paged k(in.k, page, memory, shuffled(used + 2, random));
        const Paged v(in.v, page, memory, shuffled(used + 1, random));
        Carry carry = empty_carry(c, DType::kF32);
        TileProblem problem = c.problem;
        problem.features.paged = true;
        const ForwardTiles call{.q = in.q.view(),
                                .k = k.view,
                                .v = v.view,
                                .o = carry.o.view(),
                                .lse = carry.lse.view(),
                                .tiles = c.tiles,
                                .scale = c.scale};
        const Status status = compute(kHopper, lane_device(1), problem, call);
        ASSERT_TRUE(status.ok()) << status.error().text();
        EXPECT_EQ(carry.o.values(), expected.o.values()) << "page " << page << " " << c.text();
        EXPECT_EQ(carry.lse.values(), expected.lse.values());
      }
    }
  }
}

}  // namespace
}  // namespace longspan::testing
