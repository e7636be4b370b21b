// Paged keys and values give the bits of unpaged ones, and rows behind the last token are not read.
#include <gtest/gtest.h>

#include "providers/lane.h"
#include "providers/pages.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

class PagesOf : public ::testing::TestWithParam<const Provider*> {
 protected:
  const Provider& provider() const { return *GetParam(); }
  const Device device_ = lane_device(2);
};

INSTANTIATE_TEST_SUITE_P(Lane, PagesOf, ::testing::ValuesIn(lane_providers()), label);

ForwardTiles call_of(Scene& scene, const Carry& carry) {
  return {.q = scene.in.q.view(),
          .k = scene.in.k.view(),
          .v = scene.in.v.view(),
          .o = carry.o.view(),
          .lse = carry.lse.view(),
          .tiles = scene.c.tiles,
          .scale = scene.c.scale,
          .terms = scene.c.terms};
}

TEST_P(PagesOf, GiveTheBitsOfUnpagedRows) {
  std::mt19937_64 random(31);
  for (int i = 0; i < 40; ++i) {
    Terms terms = random_terms(random);
    terms.max_logit = false;
    Scene scene = make_scene(small_case(random), terms, 2000 + static_cast<uint64_t>(i));
    if (!offered(provider(), device_, scene.c.problem)) continue;
    TileProblem problem = scene.c.problem;
    const DType wide = accumulator(problem.dtype);
    Carry expected = empty_carry(scene.c, wide);
    forward(provider(), device_, scene.c, scene.in, scene.c.tiles, expected);
    const int64_t page = pick(random, 1, 20);
    const int64_t used = (problem.capacity_k + page - 1) / page;
    for (const Memory memory : {Memory::kTokenMajor, Memory::kHeadMajor}) {
      // Keys and values may lie in different pages.
      const Paged k(scene.in.k, page, memory, shuffled(used + pick(random, 0, 3), random));
      const Paged v(scene.in.v, page, memory, shuffled(used + pick(random, 0, 3), random));
      Carry carry = empty_carry(scene.c, wide);
      ForwardTiles call = call_of(scene, carry);
      call.k = k.view;
      call.v = v.view;
      problem.features.paged = true;
      const Status status = compute(provider(), device_, problem, call);
      ASSERT_TRUE(status.ok()) << status.error().text();
      EXPECT_EQ(carry.o.values(), expected.o.values()) << "page " << page << " " << scene.text();
      EXPECT_EQ(carry.lse.values(), expected.lse.values());
    }
  }
}

TEST_P(PagesOf, AreRefusedUnlessPreparedFor) {
  Scene scene = make_scene(one_tile(6, 10, {}), {}, 1);
  if (!offered(provider(), device_, scene.c.problem)) return;
  Carry carry = empty_carry(scene.c, DType::kF32);
  const Paged k(scene.in.k, 4, Memory::kTokenMajor, {2, 0, 1});
  const Paged v(scene.in.v, 4, Memory::kTokenMajor, {2, 0, 1});
  TileProblem problem = scene.c.problem;
  ForwardTiles call = call_of(scene, carry);
  call.k = k.view;
  call.v = v.view;
  Status status = compute(provider(), device_, problem, call);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("k is paged"), std::string::npos);
  problem.features.paged = true;
  EXPECT_TRUE(compute(provider(), device_, problem, call).ok());
  problem.capacity_k = 8;  // 12 rows are more than a page beyond it
  status = compute(provider(), device_, problem, call);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("k has 12 rows"), std::string::npos);
  problem.capacity_k = 9;
  status = compute(provider(), device_, problem, call);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("tile 0 has 10 keys"), std::string::npos);
}

}  // namespace
}  // namespace longspan::testing
