// A cold call on ranks that do not mean the same ends on every rank, and says what differs.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "engine/refusals.h"
#include "longspan/routing_table.h"
#include "testkit/groups.h"

namespace longspan::testkit {
namespace {

constexpr int kRanks = 3;

struct Asked {
  std::string problem = "dtype=f32 heads=4/2 dim=8 lengths=20,10 mask=causal";
  Options options;
  std::function<void(Problem&)> change;  // beyond what a text can say
};

using Calls = std::vector<Result<std::shared_ptr<const Call>>>;

Result<std::shared_ptr<const Call>> prepare(const Asked& asked,
                                            std::shared_ptr<Communicator> communicator) {
  LONGSPAN_TRY(Problem problem, parse_problem(asked.problem));
  if (asked.change) asked.change(problem);
  LONGSPAN_TRY(const auto engine,
               Engine::create(asked.options, std::move(communicator), shared_device()));
  return engine->prepare(problem);
}

/// Every rank prepares `most` but `odd`, which prepares `other`.
Calls prepare_all(const Asked& other, int odd = 1, const Asked& most = {}) {
  Calls calls(kRanks, Error{});
  for_each_rank(make_threads_communicators(Topology::blocks(kRanks, 1)),
                [&](std::shared_ptr<Communicator> communicator) {
                  const int rank = communicator->rank();
                  calls[static_cast<size_t>(rank)] =
                      prepare(rank == odd ? other : most, communicator);
                });
  return calls;
}

void expect_disagreement(const Asked& other, const std::string& field, const Asked& most = {}) {
  for (int odd = 0; odd < kRanks; ++odd) {
    for (const auto& call : prepare_all(other, odd, most)) {
      expect_invalid(call, "ranks disagree on " + field + ": rank");
    }
  }
}

Options with(const std::function<void(Options&)>& change) {
  Options options;
  change(options);
  return options;
}

TEST(Agreement, EqualRanksPrepare) {
  for (const auto& call : prepare_all({})) EXPECT_TRUE(call.ok());
}

TEST(Agreement, DifferentProblems) {
  const std::string rest = " dim=8 lengths=20,10 mask=causal";
  expect_disagreement({.problem = "dtype=bf16 heads=4/2" + rest}, "dtype");
  expect_disagreement({.problem = "dtype=f32 heads=4/4" + rest}, "heads");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 dim=16 lengths=20,10 mask=causal scale=0.3"},
                      "dim");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 dim_v=4" + rest}, "dim_v");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 dim=8 lengths=10,20 mask=causal"},
                      "lengths");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 padded=22,10" + rest}, "padded");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 tokens=31" + rest}, "tokens");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 dim=8 lengths=20,10 mask=none"}, "mask");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 align=bottom_right" + rest}, "align");
  expect_disagreement({.problem = "dtype=f32 heads=4/2 scale=0.5" + rest}, "scale");
  for (const char* key :
       {"window=4,0", "prefix=3,0", "chunk=7", "softcap=5", "alibi=default", "bias=b,1",
        "sink=off_by_one", "dropout=0.1", "dropout_seed=4", "fp8=current", "deterministic=true",
        "invariant=true", "max_logit=true", "device_lengths=true"}) {
    const std::string text(key);
    expect_disagreement({.problem = "dtype=f32 heads=4/2 " + text + rest},
                        text.substr(0, text.find('=')));
  }
}

TEST(Agreement, DifferentLayouts) {
  const std::string even = "dtype=f32 heads=4/2 dim=8 lengths=20,20 mask=causal layout=";
  expect_disagreement({.problem = even + "sbhd"}, "layout", {.problem = even + "bshd"});
}

TEST(Agreement, DifferentOptions) {
  expect_disagreement({.options = with([](Options& o) { o.forward.strategy = "all_gather"; })},
                      "forward strategy");
  expect_disagreement({.options = with([](Options& o) { o.backward.strategy = "head_parallel"; })},
                      "backward strategy");
  expect_disagreement({.options = with([](Options& o) { o.partition = "striped"; })}, "partition");
  expect_disagreement({.options = with([](Options& o) {
                         o.forward.routing = {RoutingMode::kRequire, "cpu/reference"};
                       })},
                      "forward provider");
  expect_disagreement({.options = with([](Options& o) {
                         o.backward.routing = {RoutingMode::kOff, "cpu/tiled"};
                       })},
                      "backward provider");
  expect_disagreement({.options = with([](Options& o) { o.require_fp32_partials = true; })},
                      "require_fp32_partials");
  expect_disagreement({.options = with([](Options& o) { o.rates.node_bytes = 1e9; })}, "rates");
  expect_disagreement({.options = with([](Options& o) {
                         o.routing_table = std::make_shared<RoutingTable>(
                             RoutingTable{.fingerprint = {{"device", "another"}}, .rows = {}});
                       })},
                      "routing table");
}

TEST(Agreement, ARankWithAnInvalidProblem) {
  const Calls calls = prepare_all({.change = [](Problem& p) { p.heads_kv = 3; }}, 1);
  expect_invalid(calls[1], "heads");  // its own error
  expect_invalid(calls[0], "rank 1 could not prepare the problem");
  expect_invalid(calls[2], "rank 1 could not prepare the problem");
}

TEST(Agreement, RanksThatTellDifferentTopologies) {
  Communicators communicators = make_threads_communicators(Topology::blocks(2, 1));
  Calls calls(2, Error{});
  for_each_rank(std::move(communicators), [&](std::shared_ptr<Communicator> inner) {
    const int rank = inner->rank();
    CallbackGroup group{.rank = rank, .topology = Topology::blocks(2, rank + 1)};
    group.start = [&](std::span<const Transfer> transfers) { return inner->start(transfers); };
    group.wait = [&](Request request, std::chrono::milliseconds deadline) {
      return inner->wait(request, deadline);
    };
    calls[static_cast<size_t>(rank)] =
        prepare({}, make_callback_communicator(std::move(group)).value());
  });
  for (const auto& call : calls) expect_invalid(call, "ranks disagree on topology");
}

/// A disagreement is no lost peer: the next problem may be fine.
TEST(Agreement, TheEngineIsGoodAfterADisagreement) {
  for_each_rank(
      make_threads_communicators(Topology::blocks(2, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine = Engine::create({}, std::move(communicator), shared_device()).value();
        const Problem one = parse_problem("dtype=f32 heads=2/2 dim=4 lengths=8 mask=none").value();
        const Problem two = parse_problem("dtype=f32 heads=2/2 dim=4 lengths=9 mask=none").value();
        expect_invalid(engine->prepare(rank == 0 ? one : two), "lengths");
        EXPECT_TRUE(engine->prepare(one).ok());
      });
}

}  // namespace
}  // namespace longspan::testkit
