#include "arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "outcome.h"

namespace longspan::tool {
namespace {

using Words = std::vector<std::string>;

Arguments parsed(const Words& words) {
  const auto result = parse_arguments(words);
  EXPECT_TRUE(result.ok()) << result.error().text();
  return std::get<Arguments>(*result);
}

TEST(CommandLine, DefaultsAreThoseOfTheConventions) {
  const Arguments run = parsed({"run", "--problem", "x"});
  EXPECT_EQ(run.rank_count(), 1);
  EXPECT_EQ(run.node_count(), 1);
  EXPECT_EQ(run.forward, DirectionOptions{});
  EXPECT_EQ(run.backward, DirectionOptions{});
  EXPECT_EQ(run.partition, "auto");
  EXPECT_EQ(run.communicator, "threads");
  EXPECT_EQ(run.check, "fp64");
  EXPECT_EQ(run.deadline, 60);
  EXPECT_FALSE(run.seed.has_value());
  EXPECT_EQ(run.repeat, 1);
}

TEST(CommandLine, ProvidersPerDirection) {
  const Arguments run =
      parsed({"run", "--provider", "backward=off:cpu/tiled", "--provider", "prefer:cpu/reference"});
  EXPECT_EQ(run.forward.routing, (Routing{RoutingMode::kPrefer, "cpu/reference"}));
  EXPECT_EQ(run.backward.routing, (Routing{RoutingMode::kOff, "cpu/tiled"}));
}

TEST(CommandLine, ForwardAloneIsABackwardStrategy) {
  for (const char* command : {"run", "explain", "schedule", "simulate"}) {
    EXPECT_EQ(parsed({command, "--backward", "none"}).backward.strategy, kNoStrategy);
  }
}

TEST(CommandLine, BenchTimesFiftyIterationsAfterThreeSeconds) {
  const Arguments standard = parsed({"bench"});
  EXPECT_EQ(standard.warm_seconds, 3);
  EXPECT_EQ(standard.warmup, 5);
  EXPECT_EQ(standard.iterations, 50);
  EXPECT_FALSE(standard.graph || standard.serve);
  const Arguments given = parsed({"bench", "--warm", "0", "--warmup", "0", "--iterations", "7",
                                  "--graph", "--serve", "--backward", "none"});
  EXPECT_EQ(given.warm_seconds, 0);
  EXPECT_EQ(given.warmup, 0);
  EXPECT_EQ(given.iterations, 7);
  EXPECT_TRUE(given.graph && given.serve);
}

TEST(CommandLine, CalibrationsOfWholeLists) {
  const Arguments standard = parsed({"bench", "--calibrate", "table.json"});
  EXPECT_EQ(standard.calibrate, "table.json");
  EXPECT_EQ(standard.budget, 600);
  EXPECT_TRUE(standard.arms.empty() && standard.cases.empty());
  const Arguments given = parsed(
      {"bench", "--calibrate", "t", "--arms", "cudnn,hopper", "--budget", "7.5", "--cases", "c"});
  EXPECT_EQ(given.arms, (std::vector<std::string>{"cudnn", "hopper"}));
  EXPECT_EQ(given.budget, 7.5);
  EXPECT_EQ(parsed({"run", "--routing-table", "t"}).routing_table, "t");
}

TEST(CommandLine, LargeSeedsAndJsonToStandardOutput) {
  const Arguments run = parsed({"run", "--seed", "18446744073709551615", "--json", "-"});
  EXPECT_EQ(run.seed, 18446744073709551615u);
  EXPECT_EQ(run.json, "-");
}

TEST(CommandLine, WherePreparedKernelsAre) {
  EXPECT_EQ(parsed({"run"}).prepared, "");
  EXPECT_EQ(parsed({"run", "--prepared", "lib/store"}).prepared, "lib/store");
}

TEST(CommandLine, WhereCudnnIs) {
  EXPECT_EQ(parsed({"run"}).cudnn, "");
  EXPECT_EQ(parsed({"run", "--cudnn", "lib/cudnn"}).cudnn, "lib/cudnn");
}

struct BadLine {
  Words words;
  const char* message;
};
class BadLines : public testing::TestWithParam<BadLine> {};

TEST_P(BadLines, IsRefusedWithItsReason) {
  const auto result = parse_arguments(GetParam().words);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(exit_code(result.error().code), kBadInput);
  EXPECT_THAT(result.error().message, testing::HasSubstr(GetParam().message));
}

const BadLine kBadLines[] = {
    {{}, "subcommand is required"},
    {{"fly"},
     "unknown command 'fly'; one of run, bench, explain, schedule, simulate, list, support, "
     "prepare is needed"},
    {{"run", "--prepared", ""}, "--prepared is empty"},
    {{"bench", "--cudnn", ""}, "--cudnn is empty"},
    {{"run", "--speed", "9"}, "--speed"},
    {{"run", "--json", "x", "--output", "./x"}, "--output ./x: --json names the same file"},
    {{"run", "--save-plan", "x", "--output", "x"}, "--save-plan x: --output names the same file"},
    {{"run", "--ranks", "0"}, "--ranks 0: a whole number from 1 to"},
    {{"run", "--ranks", "-3"}, "--ranks -3"},
    {{"run", "--ranks", "two"}, "--ranks"},
    {{"run", "--ranks", "2", "--ranks", "3"}, "--ranks"},
    {{"run", "--ranks", "99999999999999999999"}, "--ranks"},
    {{"run", "--nodes", "3"}, "--nodes 3: there are only 1 ranks"},
    {{"run", "--repeat", "0"}, "--repeat 0"},
    {{"run", "--score-bytes", "-1"}, "--score-bytes -1"},
    {{"run", "--deadline", "0"}, "--deadline 0"},
    {{"run", "--deadline", "nan"}, "--deadline nan"},
    {{"run", "--seed", "-1"}, "--seed"},
    {{"run", "--forward", "rings"}, "--forward rings"},
    {{"run", "--backward", "rings"}, "--backward rings"},
    {{"run", "--forward", "none"}, "--forward none"},
    {{"schedule", "--backward", "none", "--direction", "backward"}, "forward alone"},
    {{"simulate", "--backward", "ring"}, "auto or none"},
    {{"support", "--format", "html"}, "one of markdown, json"},
    {{"bench", "--iterations", "0"}, "--iterations 0: a whole number from 1"},
    {{"bench", "--warmup", "-1"}, "--warmup -1"},
    {{"bench", "--warm", "-1"}, "--warm -1: seconds from 0 to"},
    {{"run", "--partition", "diagonal"}, "--partition diagonal"},
    {{"run", "--provider", "cuda"}, "--provider cuda"},
    {{"run", "--provider", "require:gpu"}, "--provider require:gpu"},
    {{"run", "--provider", "sideways=auto"}, "'sideways' is no direction"},
    {{"run", "--provider", "auto", "--provider", "auto"}, "was given before"},
    {{"run", "--communicator", "pigeon"}, "one of threads, mpi, peer, nccl, composite"},
    {{"run", "--check", "fp32"}, "one of fp64, none"},
    {{"schedule", "--direction", "up"}, "one of forward, backward"},
    {{"schedule", "--ranks", "2", "--rank", "2"}, "--rank 2: a whole number from 0 to 1"},
};
INSTANTIATE_TEST_SUITE_P(Lines, BadLines, testing::ValuesIn(kBadLines));

TEST(CommandLine, HelpOfEveryCommandExplainsItself) {
  for (const char* command : {"run", "bench", "explain", "schedule", "simulate"}) {
    const auto result = parse_arguments({command, "--help"});
    ASSERT_TRUE(result.ok());
    const std::string& text = std::get<Information>(*result).text;
    for (const char* part : {"--problem", "--ranks", "Examples:", "Exit codes", "kv_lengths"}) {
      EXPECT_THAT(text, testing::HasSubstr(part)) << command;
    }
  }
}

TEST(CommandLine, RawFlagsAreFoundInAnySpelling) {
  EXPECT_EQ(raw_flag({"run", "--json", "-"}, "--json"), "-");
  EXPECT_EQ(raw_flag({"run", "--json=x"}, "--json"), "x");
  EXPECT_EQ(raw_flag({"run", "--json"}, "--json"), "");
}

TEST(Outcomes, NonFiniteNumbersBecomeNull) {
  Json json = {{"a", 1.5}, {"b", {{"c", std::nan("")}}}, {"d", {1.0, 1e308 * 10}}};
  EXPECT_TRUE(replace_non_finite(json));
  EXPECT_EQ(json.dump(), R"({"a":1.5,"b":{"c":null},"d":[1.0,null]})");
  EXPECT_FALSE(replace_non_finite(json));
}

TEST(Outcomes, CodesAndStatus) {
  EXPECT_EQ(failed({ErrorCode::kUnsupported, "m", "w"}, "p", 2).json["status"], "declined");
  EXPECT_EQ(failed({ErrorCode::kUnsupported, "m", "w"}, "p", 2).exit_code, kBadInput);
  EXPECT_EQ(failed({ErrorCode::kInvalidArgument, "m", "w"}, "p", 2).json["status"], "error");
  EXPECT_EQ(failed({ErrorCode::kPeerLost, "m", "w"}, "p", 2).exit_code, kInternal);
  EXPECT_EQ(failed({ErrorCode::kTimeout, "m", "w"}, "p", 2).exit_code, kInternal);
}

}  // namespace
}  // namespace longspan::tool
