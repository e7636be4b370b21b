// Plans as bytes: what was chosen comes back, and nothing else is taken.
#include "longspan/plan_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/record_json.h"
#include "engine/refusals.h"
#include "longspan/version.h"
#include "testkit/groups.h"

namespace longspan::testkit {
namespace {

using nlohmann::json;

constexpr const char* kProblem = "dtype=f32 heads=4/2 dim=8 lengths=20,10 mask=causal";

struct Kept {
  PlanRecord record;
  std::string bytes;
  Counters counters;
  CacheStatistics plans;
};

/// One engine a rank; `make` prepares or loads. What each rank's call records.
std::vector<Result<Kept>> on_ranks(
    int ranks, const Options& options,
    const std::function<Result<std::shared_ptr<const Call>>(Engine&, int)>& make) {
  std::vector<Result<Kept>> kept(static_cast<size_t>(ranks), Error{});
  for_each_rank(
      make_threads_communicators(Topology::blocks(ranks, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options, std::move(communicator), shared_device()).value();
        const auto keep = [&]() -> Result<Kept> {
          LONGSPAN_TRY(const auto call, make(*engine, rank));
          LONGSPAN_TRY(const PlanRecord record, call->record());
          return Kept{record, record.to_bytes(), engine->counters(), engine->cache_statistics()};
        };
        kept[static_cast<size_t>(rank)] = keep();
      });
  return kept;
}

std::string recorded(const Options& options = {}, int ranks = 2, const char* problem = kProblem) {
  const auto made = on_ranks(ranks, options, [&](Engine& engine, int) {
    return engine.prepare(parse_problem(problem).value());
  });
  for (const auto& rank : made) EXPECT_EQ(rank.value().bytes, made.front().value().bytes);
  EXPECT_EQ(made.front().value().counters.selections, 1);
  EXPECT_GT(made.front().value().plans.declines, 0);
  return made.front().value().bytes;
}

std::vector<Result<Kept>> loaded(const std::string& bytes, const Options& options = {},
                                 int ranks = 2) {
  return on_ranks(ranks, options, [&](Engine& engine, int) { return engine.load(bytes); });
}

void expect_load_refused(const std::string& bytes, const std::string& text,
                         const Options& options = {}, int ranks = 2) {
  for (const auto& rank : loaded(bytes, options, ranks)) expect_invalid(rank, text);
}

/// The plan with one field changed, and a checksum that fits it.
std::string with(const std::string& bytes, const std::string& pointer, const json& value) {
  json plan = json::parse(bytes);
  plan[json::json_pointer(pointer)] = value;
  return sealed(plan);
}

Options every_option() {
  Options options;
  options.forward = {"all_to_all", parse_routing("require:cpu/reference").value()};
  options.backward = {"all_to_all", parse_routing("off:cpu/reference").value()};
  options.partition = "striped";
  options.head_slices = 2;
  options.require_fp32_partials = true;
  options.promises = {Promise::kUniformLengths};
  return options;
}

TEST(PlanRecord, IsLoadedWithoutChoosing) {
  for (const Options& options : {Options(), every_option()}) {
    const char* const problem = "dtype=f32 heads=8/4 dim=8 lengths=20,10 mask=causal scale=0.3";
    const std::string bytes = recorded(options, 2, problem);
    for (const auto& rank : loaded(bytes)) {
      EXPECT_EQ(rank.value().bytes, bytes);
      EXPECT_EQ(rank.value().counters.selections, 0);
      EXPECT_EQ(rank.value().plans.declines, 0);  // nobody else was asked
    }
  }
}

TEST(PlanRecord, KeepsEveryOption) {
  const PlanRecord record =
      PlanRecord::from_bytes(
          recorded(every_option(), 2, "dtype=f32 heads=8/4 dim=8 lengths=20,10 mask=causal"))
          .value();
  EXPECT_EQ(record.forward.strategy, "all_to_all");
  EXPECT_EQ(record.forward.routing, "require:cpu/reference");
  EXPECT_EQ(record.forward.provider, "cpu/reference");
  EXPECT_EQ(record.backward->routing, "off:cpu/reference");
  EXPECT_EQ(record.backward->provider, "cpu/tiled");
  EXPECT_EQ(record.partition, PartitionKind::kStriped);
  EXPECT_EQ(record.head_slices, 2);
  EXPECT_TRUE(record.require_fp32_partials);
  EXPECT_EQ(record.promises, std::vector{Promise::kUniformLengths});
  EXPECT_EQ(record.node_of_rank, (std::vector<int>{0, 0}));
}

TEST(PlanRecord, KeepsWhetherKeysAreGathered) {
  const std::string bytes = recorded();
  EXPECT_FALSE(PlanRecord::from_bytes(bytes).value().gathers_whole);
  const PlanRecord record = PlanRecord::from_bytes(with(bytes, "/gathers_whole", true)).value();
  EXPECT_TRUE(record.gathers_whole);
  EXPECT_TRUE(PlanRecord::from_bytes(record.to_bytes()).value().gathers_whole);
  const auto settled = settle(record, Topology::blocks(2, 1), shared_device());
  ASSERT_TRUE(settled.ok()) << settled.error().text();
  EXPECT_TRUE(settled->setting.gathers_whole);
}

TEST(PlanRecord, BuildsNothingThatTheCacheHas) {
  Options options;
  options.plans = make_plan_cache();
  const std::string bytes = recorded(options, 1);
  const CacheStatistics before = statistics(*options.plans);
  const auto again = loaded(bytes, options, 1);
  EXPECT_EQ(again.front().value().plans.builds, before.builds);
  EXPECT_EQ(again.front().value().plans.declines, before.declines);
  EXPECT_EQ(again.front().value().plans.hits, before.hits + 2);
}

TEST(PlanRecord, ForwardAlone) {
  Options options;
  options.backward.strategy = kNoStrategy;
  const std::string bytes = recorded(options);
  EXPECT_FALSE(PlanRecord::from_bytes(bytes).value().backward.has_value());
  EXPECT_EQ(loaded(bytes).front().value().bytes, bytes);
}

TEST(PlanRecord, EveryChangedByteIsRefused) {
  const std::string bytes = recorded();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {1, 2, 16, 128}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      EXPECT_FALSE(PlanRecord::from_bytes(changed).ok()) << "byte " << i << ", bit " << bit;
    }
  }
}

TEST(PlanRecord, CutAndOverlongBytesAreRefused) {
  const std::string bytes = recorded();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(PlanRecord::from_bytes(bytes.substr(0, size)).ok()) << size;
  }
  expect_load_refused(bytes + " ", "not as they were written");
  expect_load_refused(bytes + bytes, "no JSON object");
  expect_load_refused("", "a plan of 0 bytes");
  expect_load_refused(std::string(kMostPlanBytes + 1, ' '), "has from 1 to 16777216");
  const std::string deep(1 << 20, '[');
  expect_load_refused(
      R"({"format":1,"longspan":"0.1.0","x":)" + deep + std::string(deep.size(), ']') + "}",
      "not as they were written");
}

TEST(PlanRecord, WhatItIsOfMustBeHere) {
  const std::string bytes = recorded();
  expect_load_refused(with(bytes, "/format", 2), "format is 2; this library reads 1");
  expect_load_refused(with(bytes, "/longspan", "0.0.9"),
                      "recorded by longspan \"0.0.9\"; this is \"" LONGSPAN_VERSION "\"");
  expect_load_refused(with(bytes, "/device", "cuda 9.0 NVIDIA H200"),
                      "for device \"cuda 9.0 NVIDIA H200\"; this is \"cpu\"");
  expect_load_refused(with(bytes, "/forward/identity", "0"), "cpu/tiled was \"0\"");
  expect_load_refused(with(bytes, "/backward/schedule", "0123456789abcdef"),
                      "backward schedule has hash 0123456789abcdef");
  expect_load_refused(bytes, "the plan is of 2 ranks; there are 3", {}, 3);
  expect_load_refused(with(bytes, "/node_of_rank", {0, 1}),
                      "lie on nodes 0,1; here they lie on 0,0");
}

TEST(PlanRecord, FieldsAreKnownAndTyped) {
  const std::string bytes = recorded();
  expect_load_refused(with(bytes, "/comment", "mine"), "unknown field \"comment\"");
  expect_load_refused(with(bytes, "/forward/engine", 1), "unknown field \"engine\"");
  expect_load_refused(with(bytes, "/forward", "ring"), "the plan's forward must be an object");
  expect_load_refused(with(bytes, "/head_slices", 0), "from 1 to 64");
  expect_load_refused(with(bytes, "/head_slices", -1), "from 1 to 64");
  expect_load_refused(with(bytes, "/node_of_rank", json::array()), "of one at least");
  expect_load_refused(with(bytes, "/node_of_rank", {0, 2}), "below the number of ranks");
  expect_load_refused(with(bytes, "/require_fp32_partials", "no"), "true or false");
  expect_load_refused(with(bytes, "/promises", {"no_nan"}), "promise \"no_nan\" is unknown");
  expect_load_refused(with(bytes, "/guards", "trap"), "trap");
  expect_load_refused(with(bytes, "/partition", "halves"), "halves");
  expect_load_refused(with(bytes, "/forward/strategy", "rings"), "unknown strategy \"rings\"");
  expect_load_refused(with(bytes, "/forward/provider", "cpu/other"), "cpu/other");
  expect_load_refused(with(bytes, "/forward/routing", "off:cpu/tiled"), "not one that routing");
  expect_load_refused(with(bytes, "/forward/schedule", "12"), "16 hexadecimal digits");
  expect_load_refused(with(bytes, "/problem", "dtype=f32"), "heads");
  expect_load_refused(with(bytes, "/problem", std::string(kProblem) + " scale=1e0"),
                      "not in canonical form");
  json without = json::parse(bytes);
  without.erase("device");
  expect_load_refused(sealed(without), "no field \"device\"");
}

TEST(PlanRecord, OtherDeclarationsMissTheHash) {
  const std::string bytes = recorded();
  expect_load_refused(
      with(bytes, "/problem", "dtype=f32 heads=4/2 dim=8 lengths=20,11 mask=causal"),
      "forward schedule has hash");
  expect_load_refused(with(bytes, "/partition", "striped"), "forward schedule has hash");
}

TEST(PlanRecord, WhatAStrategyDeclinesIsRefused) {
  const std::string bytes = recorded();
  const std::string forged = with(bytes, "/forward/strategy", "head_parallel");
  for (const auto& rank : loaded(forged)) {
    expect_refused(rank, ErrorCode::kUnsupported, "head_parallel");
  }
}

TEST(PlanRecord, OptionsThatContradictItAreRefused) {
  const std::string bytes = recorded();
  const auto refused = [&](const std::function<void(Options&)>& change, const std::string& text) {
    Options options;
    change(options);
    expect_load_refused(bytes, text, options);
  };
  refused([](Options& o) { o.forward.strategy = "hybrid"; }, "forward strategy is hybrid here");
  refused([](Options& o) { o.backward.strategy = "none"; }, "backward strategy is none here");
  refused([](Options& o) { o.forward.routing = parse_routing("off:cudnn").value(); },
          "forward provider is off:cudnn here and auto in the plan");
  refused([](Options& o) { o.partition = "striped"; }, "partition is striped here");
  refused([](Options& o) { o.head_slices = 2; }, "head_slices is 2 here and 1 in the plan");
  refused([](Options& o) { o.require_fp32_partials = true; }, "require_fp32_partials is true");
  refused([](Options& o) { o.promises = {Promise::kUniformLengths}; },
          "promises is uniform_lengths here and none in the plan");
}

TEST(PlanRecord, RanksWithDifferentPlansAreTold) {
  const std::string bytes = recorded();
  const auto of_rank = [&](Engine& engine, int rank) -> Result<std::shared_ptr<const Call>> {
    return rank == 0 ? engine.load(bytes) : engine.prepare(parse_problem(kProblem).value());
  };
  for (const auto& rank : on_ranks(2, {}, of_rank)) expect_invalid(rank, "ranks disagree on plan");
  const auto damaged = on_ranks(2, {}, [&](Engine& engine, int rank) {
    return engine.load(rank == 0 ? bytes : bytes.substr(1));
  });
  expect_invalid(damaged[0], "rank 1 could not prepare the problem");
  expect_invalid(damaged[1], "no JSON object");
}

/// A choice of cuDNN, which need not be there.
Result<PlanRecord> record_of(const Problem& problem, const std::string& provider) {
  const Device gpu{.name = "cuda:0", .ordinal = 0, .capability = 90, .product = "NVIDIA H200"};
  Explanation explanation;
  explanation.forward_only = true;
  explanation.forward.strategy = find_strategy("ring").value();
  for (const Provider* known : providers()) {
    if (known->name() == provider) explanation.forward.provider = known;
  }
  const Topology one = Topology::blocks(1, 1);
  return make_record({.problem = problem,
                      .topology = one,
                      .device = gpu,
                      .options = {},
                      .explanation = explanation});
}

TEST(PlanRecord, NamesTheDevice) {
  const Problem problem = parse_problem(kProblem).value();
  EXPECT_EQ(record_of(problem, "cuda/reference").value().device, "cuda 9.0 NVIDIA H200");
}

TEST(PlanRecord, ProvidersThatChooseAnewAreRefused) {
  expect_refused(record_of(parse_problem(kProblem).value(), "cudnn"), ErrorCode::kUnsupported,
                 "cuDNN chooses engines by its heuristics");
}

TEST(PlanRecord, WhatTextCannotSayIsRefused) {
  Problem odd = parse_problem(kProblem).value();
  odd.capacity.tokens_q = 4096;
  expect_refused(record_of(odd, "cuda/reference"), ErrorCode::kUnsupported,
                 "another problem than the one prepared");
  Problem modified = parse_problem(kProblem).value();
  modified.modification.functions = std::make_shared<Modification>(Modification{.key = "mine"});
  expect_refused(record_of(modified, "cuda/reference"), ErrorCode::kUnsupported,
                 "the score modification \"mine\" is a callback");
}

}  // namespace
}  // namespace longspan::testkit
