// What the CPU providers refuse, and how calls that do not fit are rejected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "providers/lane.h"
#include "providers/rules.h"
#include "providers/support.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

class EveryProvider : public ::testing::TestWithParam<const Provider*> {
 protected:
  const Provider& provider() const { return *GetParam(); }
  const Device cpu_ = device(2);
};

INSTANTIATE_TEST_SUITE_P(Lane, EveryProvider, ::testing::ValuesIn(lane_providers()), label);

TEST(List, DevicesFirstReferencesBehindWhatIsFaster) {
  std::vector<std::string_view> names;
  for (const Provider* provider : providers()) names.push_back(provider->name());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"cuda/reference", "cpu/tiled", "cpu/reference"}));
  const auto place = [&](std::string_view name) { return std::ranges::find(names, name); };
  EXPECT_LT(place("cuda/reference"), place("cpu/tiled"));
  EXPECT_EQ(place("cpu/tiled") + 1, place("cpu/reference"));
  EXPECT_EQ(place("cpu/reference") + 1, names.end());
}

void expect_decline(const Provider& provider, const TileProblem& problem, const Device& cpu,
                    DeclineCode code, const std::string& part) {
  const Verdict verdict = provider.consider(problem, cpu);
  const Decline* decline = declined(verdict);
  ASSERT_NE(decline, nullptr) << part;
  EXPECT_EQ(decline->code, code);
  EXPECT_THAT(decline->detail, HasSubstr(part));
  const auto plan = provider.prepare(problem, cpu);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(plan.error().message, HasSubstr(part));
}

TEST_P(EveryProvider, Declines) {
  const TileProblem good = one_tile(4, 4, {}).problem;
  EXPECT_EQ(declined(provider().consider(good, cpu_)), nullptr);
  const auto bad = [&](DeclineCode code, const std::string& part, auto&& change) {
    TileProblem problem = good;
    change(problem);
    expect_decline(provider(), problem, cpu_, code, part);
  };
  bad(DeclineCode::kWhole, "give f32 tensors", [](TileProblem& p) { p.features.whole = true; });
  bad(DeclineCode::kHeadDim, "dim 0", [](TileProblem& p) { p.dim_qk = 0; });
  bad(DeclineCode::kHeadDim, "dim 577", [](TileProblem& p) { p.dim_qk = 577; });
  bad(DeclineCode::kHeadDim, "dim_v 600", [](TileProblem& p) { p.dim_v = 600; });
  bad(DeclineCode::kHeads, "0 query heads", [](TileProblem& p) { p.heads_q = 0; });
  bad(DeclineCode::kHeads, "-1 key heads", [](TileProblem& p) { p.heads_kv = -1; });
  bad(DeclineCode::kHeads, "group 0", [](TileProblem& p) { p.group = 0; });
  bad(DeclineCode::kHeads, "group_offset -1", [](TileProblem& p) { p.group_offset = -1; });
  bad(DeclineCode::kHeads, "key head 1 of 1", [](TileProblem& p) { p.group_offset = 1; });
  bad(DeclineCode::kCapacity, "-5 query", [](TileProblem& p) { p.capacity_q = -5; });
  bad(DeclineCode::kCapacity, "key rows", [](TileProblem& p) { p.capacity_k = int64_t{1} << 32; });
  bad(DeclineCode::kFp8, "fp8=mxfp8", [](TileProblem& p) { p.features.fp8 = Fp8::kMxfp8; });
  bad(DeclineCode::kPage, "forward only", [](TileProblem& p) {
    p.direction = Direction::kBackward;
    p.features.paged = true;
  });
  Device other = cpu_;
  other.name = "cuda:0";
  expect_decline(provider(), good, other, DeclineCode::kDevice, "cuda:0");
  expect_decline(provider(), good, Device{}, DeclineCode::kDevice, "cpu_device()");
}

/// What plans for whole results take, whoever makes them.
TEST(Whole, ResultsAreOfTheProblemsTypeAndDeltaMayBeLeftOut) {
  const Case c = one_tile(10, 12, {}, DType::kBF16);
  TileProblem problem = c.problem;
  problem.features.whole = true;
  const Inputs in = make_inputs(c, 1);
  const Carry o = empty_carry(c, DType::kBF16);
  const Carry carry = empty_carry(c, DType::kF32);
  const Gradients g = zero_gradients(c, DType::kBF16);
  ForwardTiles forward{.q = in.q.view(),
                       .k = in.k.view(),
                       .v = in.v.view(),
                       .o = o.o.view(),
                       .lse = carry.lse.view(),
                       .tiles = c.tiles};
  EXPECT_TRUE(fits(problem, forward, Carries::kAccumulator).ok());
  forward.o = carry.o.view();
  EXPECT_THAT(fits(problem, forward, Carries::kAccumulator).error().message,
              HasSubstr("o is f32, the plan was prepared for bf16"));
  problem.direction = Direction::kBackward;
  BackwardTiles backward{.q = in.q.view(),
                         .k = in.k.view(),
                         .v = in.v.view(),
                         .dout = in.dout.view(),
                         .lse = carry.lse.view(),
                         .o = o.o.view(),
                         .dq = g.dq.view(),
                         .dk = g.dk.view(),
                         .dv = g.dv.view(),
                         .tiles = c.tiles};
  EXPECT_TRUE(fits(problem, backward, Carries::kAccumulator).ok());
  backward.o = {};
  EXPECT_THAT(fits(problem, backward, Carries::kAccumulator).error().message,
              HasSubstr("delta has 0 rows, expected 10"));
  backward.o = carry.o.view();
  EXPECT_THAT(fits(problem, backward, Carries::kAccumulator).error().message,
              HasSubstr("o is f32"));
}

/// What plans take whose calls bring lengths, whoever makes them.
TEST(Lengths, AreGivenExactlyWhereThePlanAsksForThem) {
  Case c = one_tile(10, 12, {});
  c.tiles[0].tile.sequence = 1;
  const Inputs in = make_inputs(c, 1);
  const Carry carry = empty_carry(c, DType::kF32);
  const std::vector<int32_t> two = {0, 7};
  const std::vector<int32_t> one = {7};
  ForwardTiles call{in.q.view(),      in.k.view(), in.v.view(), carry.o.view(),
                    carry.lse.view(), c.tiles,     c.scale};
  TileProblem problem = c.problem;
  const auto refusal = [&] {
    const Status status = fits(problem, call, Carries::kAccumulator);
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_EQ(refusal(), "accepted");
  call.lengths = {.q = two, .k = two};
  EXPECT_THAT(refusal(), HasSubstr("prepared without: leave them out"));
  problem.features.device_lengths = true;
  EXPECT_EQ(refusal(), "accepted");
  for (const ActualLengths& lengths :
       {ActualLengths{}, {.q = two, .k = {}}, {.q = one, .k = two}, {.q = two, .k = one}}) {
    call.lengths = lengths;
    EXPECT_THAT(refusal(), HasSubstr("tile 0 is of sequence 1, lengths are given of"));
  }
}

struct Misuse {
  const char* message;
  std::function<void(ForwardTiles&)> change;
};

TEST_P(EveryProvider, ForwardRejectsWhatDoesNotFit) {
  Case c = one_tile(10, 12, {});
  const Inputs in = make_inputs(c, 1);
  Carry carry = empty_carry(c, DType::kF32);
  const auto plan = provider().prepare(c.problem, cpu_).value();
  std::vector<uint64_t> memory(plan->workspace_bytes() / 8 + 16);
  void* data = memory.data();
  size_t space = memory.size() * 8;
  const Workspace good{std::align(64, plan->workspace_bytes(), data, space),
                       plan->workspace_bytes()};
  PlacedTile outside = c.tiles[0];
  const ForwardTiles call{in.q.view(),      in.k.view(), in.v.view(), carry.o.view(),
                          carry.lse.view(), c.tiles,     c.scale};
  ASSERT_TRUE(plan->forward(call, good).ok());
  const Misuse cases[] = {
      {"q is f16", [](ForwardTiles& t) { t.q.dtype = DType::kF16; }},
      {"k has 2 heads", [](ForwardTiles& t) { t.k.heads = 2; }},
      {"v has dim 11", [](ForwardTiles& t) { t.v.dim = 11; }},
      {"v has 6 rows, expected 12", [](ForwardTiles& t) { t.v.seq = 6; }},
      {"o is bf16", [](ForwardTiles& t) { t.o.dtype = DType::kBF16; }},
      {"lse has dim 2", [](ForwardTiles& t) { t.lse.dim = 2; }},
      {"q has 10 rows but no data", [](ForwardTiles& t) { t.q.data = nullptr; }},
      {"key rows [1, 13) of 12",
       [&](ForwardTiles& t) {
         outside.k_row = 1;
         t.tiles = {&outside, 1};
       }},
      {"query rows [-1, 9) of 10",
       [&](ForwardTiles& t) {
         outside.q_row = -1;
         t.tiles = {&outside, 1};
       }},
      {"at most 10", [](ForwardTiles& t) { t.q.seq = t.o.seq = t.lse.seq = 11; }},
  };
  for (const Misuse& misuse : cases) {
    outside = c.tiles[0];
    ForwardTiles changed = call;
    misuse.change(changed);
    const Status status = plan->forward(changed, good);
    ASSERT_FALSE(status.ok()) << misuse.message;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr(misuse.message));
  }
  const Workspace bad[] = {{good.data, good.bytes - 1},
                           {nullptr, good.bytes},
                           {static_cast<std::byte*>(good.data) + 8, good.bytes}};
  for (const Workspace& workspace : bad) {
    const Status status = plan->forward(call, workspace);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("workspace"));
  }
}

TEST_P(EveryProvider, BackwardRejectsWhatDoesNotFit) {
  Case c = one_tile(10, 12, {});
  const Inputs in = make_inputs(c, 1);
  Outcome r = run(provider(), c, in, cpu_);
  const Tensor delta = make_delta(c, in, r.carry.o, DType::kF32);
  const BackwardTiles call{
      in.q.view(),           in.k.view(),           in.v.view(), in.dout.view(),
      r.carry.lse.view(),    delta.view(),          {},          r.gradients.dq.view(),
      r.gradients.dk.view(), r.gradients.dv.view(), c.tiles,     c.scale};
  ASSERT_TRUE(attend_tiles(provider(), cpu_, c.problem, call).ok());
  BackwardTiles changed = call;
  changed.dk.dtype = DType::kF16;
  EXPECT_THAT(attend_tiles(provider(), cpu_, c.problem, changed).error().message,
              HasSubstr("dk is f16"));
  changed = call;
  changed.delta.seq = 9;
  EXPECT_THAT(attend_tiles(provider(), cpu_, c.problem, changed).error().message,
              HasSubstr("delta has 9 rows, expected 10"));
  c.problem.direction = Direction::kForward;
  const auto plan = provider().prepare(c.problem, cpu_).value();
  EXPECT_THAT(plan->backward(call, {}).error().message, HasSubstr("prepared for forward"));
}

TEST_P(EveryProvider, AttendTilesIsOneWholeCall) {
  const Case c = one_tile(33, 44, {-kUnbounded, 5});
  const Inputs in = make_inputs(c, 1);
  const Outcome expected = run(provider(), c, in, cpu_);
  Carry carry = empty_carry(c, DType::kF32);
  const ForwardTiles call{in.q.view(),      in.k.view(), in.v.view(), carry.o.view(),
                          carry.lse.view(), c.tiles,     c.scale};
  ASSERT_TRUE(attend_tiles(provider(), cpu_, c.problem, call).ok());
  EXPECT_EQ(carry.o.values(), expected.carry.o.values());
  TileProblem problem = c.problem;
  problem.features.fp8 = Fp8::kDelayed;
  const Status status = attend_tiles(provider(), cpu_, problem, call);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().message, HasSubstr("remove fp8"));
}

}  // namespace
}  // namespace longspan::testing
