// Which builds a problem gets, and what is said when some are missing.
#include "providers/prepared/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/key.h"
#include "scene.h"

namespace longspan::prepared::testing {
namespace {

using ::testing::HasSubstr;

/// Stores without double.so's checks: what is chosen is opened.
std::variant<Builds, Decline> chosen(const std::vector<json>& manifests, const TileProblem& p) {
  DoubleStore folder;
  for (const json& m : manifests) folder.add(m);
  const auto store = folder.read();
  if (!store.ok()) throw std::runtime_error(store.error().text());
  return choose(p, **store);
}

json full() { return forward_manifest("full", "full", "full", kForwardFull); }
json causal() { return forward_manifest("causal", "causal", "causal", kForwardFull); }

json frost(const char* mask, int tokens, bool lengths) {
  json manifest = frost_manifest("frost23", "frost.sm90", kFrost23);
  manifest["name"] = std::string(mask) + std::to_string(tokens) + (lengths ? "l" : "");
  json& serves = manifest["serves"];
  serves["mask"] = mask;
  serves["tokens_q"] = serves["tokens_k"] = tokens;
  serves["lengths"] = lengths;
  return manifest;
}

std::string decline_of(const std::vector<json>& manifests, const TileProblem& p) {
  const auto found = chosen(manifests, p);
  if (const auto* const decline = std::get_if<Decline>(&found)) {
    EXPECT_EQ(decline->code, DeclineCode::kNotPrepared);
    return decline->detail;
  }
  return "offered";
}

TEST(Choose, AProblemNeedsBothShapesOfARing) {
  EXPECT_EQ(decline_of({full(), causal()}, problem()), "offered");
  EXPECT_THAT(decline_of({full()}, problem()), HasSubstr("has no causal build"));
  EXPECT_THAT(decline_of({causal()}, problem()), HasSubstr("has no full build"));
}

TEST(Choose, TheDeclineHasTheCommand) {
  EXPECT_THAT(decline_of({}, problem()),
              HasSubstr("--for \"dtype=bf16 heads=4/2 dim=16 dim_v=16 lengths=1000 "
                        "kv_lengths=1000 mask=causal\""));
}

TEST(Choose, WindowsNeedABuildOfTheirOwn) {
  TileProblem p = problem();
  p.features.window = true;
  EXPECT_THAT(decline_of({full(), causal()}, p), HasSubstr("has no window build"));
  const json window = forward_manifest("window", "window", "window", kForwardWindow);
  EXPECT_EQ(decline_of({full(), causal(), window}, p), "offered");
}

TEST(Choose, TypesDimsGroupsAndDirectionMustAgree) {
  const std::vector<json> both = {full(), causal()};
  for (const auto& change : std::vector<std::function<void(TileProblem&)>>{
           [](TileProblem& p) { p.dtype = DType::kF16; }, [](TileProblem& p) { p.dim_qk = 24; },
           [](TileProblem& p) { p.dim_v = 24; },
           [](TileProblem& p) { p.heads_q = p.heads_kv = 2, p.group = 1; },
           [](TileProblem& p) { p.direction = Direction::kBackward; }}) {
    TileProblem p = problem();
    change(p);
    EXPECT_THAT(decline_of(both, p), HasSubstr("has no full build"));
  }
}

TEST(Choose, DeterministicBackwardsAreBuildsOfTheirOwn) {
  TileProblem p = problem(Direction::kBackward);
  const std::vector<json> plain = {backward_manifest("a", "full"),
                                   backward_manifest("b", "causal")};
  EXPECT_EQ(decline_of(plain, p), "offered");
  p.features.deterministic = true;
  EXPECT_THAT(decline_of(plain, p), HasSubstr("deterministic=true"));
  EXPECT_EQ(
      decline_of({backward_manifest("a", "full", true), backward_manifest("b", "causal", true)}, p),
      "offered");
}

TEST(Choose, ForwardsAreAlwaysDeterministic) {
  TileProblem p = problem();
  p.features.deterministic = true;
  EXPECT_EQ(decline_of({full(), causal()}, p), "offered");
}

TEST(Choose, ABuildThatCannotBeOpenedIsADecline) {
  json broken = causal();
  broken["library"]["sha256"] = std::string(64, '0');
  EXPECT_THAT(decline_of({full(), broken}, problem()), HasSubstr("checksum"));
}

TEST(Choose, BuildsOfOtherArchitecturesAreLeftOut) {
  json other = causal();
  other["architecture"] = "sm_100a";
  EXPECT_THAT(decline_of({full(), other}, problem()),
              HasSubstr("has no causal build for sm_90a (those for sm_100a are never run) of "
                        "forward bf16"));
}

TEST(Choose, OnlySomeBuildsMayServeAProblem) {
  const Problem p =
      parse_problem("dtype=bf16 heads=4/2 dim=16 lengths=100 mask=causal deterministic=true")
          .value();
  const auto serves = [&](Serves s, Direction direction = Direction::kForward) {
    Manifest m;
    m.serves = s;
    return may_serve(m, p, direction);
  };
  const Serves forward{.dtype = DType::kBF16, .dim = 16, .dim_v = 16, .group = 2};
  EXPECT_TRUE(serves(forward));  // deterministic or not
  const auto changed = [&](auto change) {
    Serves s = forward;
    change(s);
    return s;
  };
  EXPECT_TRUE(serves(changed([](Serves& s) { s.group = 1; })));  // of a rank with a part of a group
  EXPECT_FALSE(serves(changed([](Serves& s) { s.group = 4; })));
  EXPECT_FALSE(serves(changed([](Serves& s) { s.dim_v = 24; })));
  EXPECT_FALSE(serves(changed([](Serves& s) { s.dtype = DType::kF16; })));
  EXPECT_FALSE(serves(forward, Direction::kBackward));
  Serves backward = changed([](Serves& s) { s.direction = Direction::kBackward; });
  EXPECT_FALSE(serves(backward, Direction::kBackward));
  backward.deterministic = true;
  EXPECT_TRUE(serves(backward, Direction::kBackward));
}

TEST(Choose, FrostNeedsRoomForAnyRows) {
  TileProblem p = problem();
  p.dim_qk = p.dim_v = 512;
  p.capacity_q = p.capacity_k = 256;
  const std::vector<json> any = {frost("full", 256, true), frost("causal", 256, true)};
  EXPECT_EQ(decline_of(any, p), "offered");
  EXPECT_THAT(decline_of({frost("full", 256, false), frost("causal", 256, false)}, p),
              HasSubstr("has no full build"));
  p.capacity_q = 257;
  EXPECT_THAT(decline_of(any, p), HasSubstr("has no full build"));
}

/// What longspan.prepare rounds the rows of a problem up to.
TEST(Choose, BuildsOfFixedRowsMustHoldWhatPlansAreMadeFor) {
  TileProblem p = problem();
  p.dim_qk = p.dim_v = 512;
  p.capacity_q = p.capacity_k = bucket(330);
  EXPECT_THAT(decline_of({frost("full", 330, true), frost("causal", 330, true)}, p),
              HasSubstr("lengths=384 kv_lengths=384"));
  EXPECT_EQ(decline_of({frost("full", 384, true), frost("causal", 384, true)}, p), "offered");
}

TEST(Choose, ABuildOfExactlyTheseRowsGoesFirst) {
  TileProblem p = problem();
  p.dim_qk = p.dim_v = 512;
  p.capacity_q = p.capacity_k = 256;
  const auto found = chosen(
      {frost("full", 256, true), frost("causal", 256, true), frost("causal", 100, false)}, p);
  const auto* const builds = std::get_if<Builds>(&found);
  ASSERT_NE(builds, nullptr);
  const auto name = [&](int64_t nq, int64_t nk) {
    const Kernel* const kernel = builds->find({Shape::kCausal, false, nq, nk});
    return kernel == nullptr ? "none" : kernel->manifest().name;
  };
  EXPECT_EQ(name(100, 100), "causal100");
  EXPECT_EQ(name(100, 101), "causal256l");
  EXPECT_EQ(name(257, 10), "none");
}

}  // namespace
}  // namespace longspan::prepared::testing
