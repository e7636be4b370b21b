// all_gather's backward with whole gradients of gathered keys, computed on the host: right by the
// bars of GPUs in every dtype, and the bytes of the schedule.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/build.h"
#include "engine/choose.h"
#include "engine/host_ops.h"
#include "guard/guard.h"
#include "plan/cache.h"
#include "rank.h"
#include "testkit/counting.h"
#include "testkit/flight.h"
#include "testkit/groups.h"

namespace longspan::testkit {
namespace {

const Provider& tiled() {
  for (const Provider* provider : providers()) {
    if (provider->name() == "cpu/tiled") return *provider;
  }
  throw std::logic_error("no cpu/tiled");
}

/// A contiguous tensor of accumulators, zero at first.
struct Sums {
  Sums(const TensorView& like, int64_t dim)
      : values(static_cast<size_t>(like.rows() * like.heads * dim)),
        view(packed_view(values.data(), DType::kF32, like.rows(), like.heads, dim)) {}
  std::vector<float> values;
  TensorView view;
};

Copy rows_of(const TensorView& view, int64_t row, int64_t rows) {
  return {.src_row = row, .dst_row = row, .rows = rows, .heads = view.heads};
}

/// Whole gradients: what another plan adds up in FP32, rounded once.
class WholePlan final : public Plan {
 public:
  explicit WholePlan(std::shared_ptr<const Plan> inner) : inner_(std::move(inner)) {}
  size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  Status forward(const ForwardTiles&, Workspace) const override {
    return Error{ErrorCode::kUnsupported, "backward alone", "test"};
  }
  Status backward(const BackwardTiles& t, Workspace workspace) const override {
    Workers& workers = *shared_device().workers;
    Sums o(t.o, t.o.dim), delta(t.o, 1), dq(t.dq, t.dq.dim), dk(t.dk, t.dk.dim), dv(t.dv, t.dv.dim);
    const Copy all = rows_of(t.o, 0, t.o.rows());
    copy_rows(t.o, o.view, all, workers);
    delta_rows(o.view, t.dout, delta.view, all, workers);
    BackwardTiles sums = t;
    sums.delta = delta.view;
    sums.o = {};
    sums.dq = dq.view;
    sums.dk = dk.view;
    sums.dv = dv.view;
    LONGSPAN_CHECK_OK(inner_->backward(sums, workspace));
    for (const PlacedTile& tile : t.tiles) {
      copy_rows(dq.view, t.dq, rows_of(t.dq, tile.q_row, tile.tile.q.size()), workers);
      copy_rows(dk.view, t.dk, rows_of(t.dk, tile.k_row, tile.tile.k.size()), workers);
      copy_rows(dv.view, t.dv, rows_of(t.dv, tile.k_row, tile.tile.k.size()), workers);
    }
    return {};
  }

 private:
  std::shared_ptr<const Plan> inner_;
};

class WholeProvider final : public Provider {
 public:
  std::string_view name() const override { return "test/whole"; }
  std::string_view summary() const override { return "for tests"; }
  Result<std::string> identity(const Problem&, Direction, const Device&) const override {
    return std::string("1");
  }
  Verdict consider(const TileProblem&, const Device&) const override {
    return Offer{.partials_16bit = true};
  }
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device& device) const override {
    TileProblem merged = problem;
    merged.features.whole = false;
    LONGSPAN_TRY(auto inner, tiled().prepare(merged, device));
    if (!problem.features.whole) return inner;
    return std::shared_ptr<const Plan>(std::make_shared<WholePlan>(std::move(inner)));
  }
};

/// The call as a GPU would make it.
Result<std::shared_ptr<const PreparedCall>> gathering_call(const Case& c, const Problem& problem,
                                                           int rank) {
  static const WholeProvider whole;
  Wanted wanted{.problem = problem, .options = options_of(c), .record = {}};
  wanted.options.plans = make_plan_cache();
  LONGSPAN_TRY(Choice choice, choose(problem, Topology::blocks(c.ranks, 1), shared_device(),
                                     wanted.options, *wanted.options.plans));
  choice.setting.whole = choice.setting.gathers_whole = true;
  choice.explanation.backward.provider = &whole;
  LONGSPAN_TRY(auto report, guard::make_report(shared_device()));
  return build_call(wanted, std::move(choice), shared_device(), rank, std::move(report));
}

struct Ran {
  std::optional<tool::RankResults> results;
  int64_t bytes = 0;  // counted in backward
  Status status;
};

Status run_rank(const Case& c, const tool::Inputs& inputs,
                std::shared_ptr<Communicator> communicator, Ran& ran) {
  const int rank = communicator->rank();
  const auto counting = std::make_shared<CountingCommunicator>(std::move(communicator));
  LONGSPAN_TRY(const auto engine, Engine::create(options_of(c), counting, shared_device()));
  LONGSPAN_TRY(const auto call, gathering_call(c, inputs.problem, rank));
  Flight flight = make_flight(inputs, call, rank);
  LONGSPAN_CHECK_OK(forward(*engine, flight));
  counting->take_bytes();
  LONGSPAN_CHECK_OK(backward(*engine, flight));
  ran.bytes = counting->take_bytes();
  ran.results.emplace();
  ran.results->call = flight.call;
  static_cast<tool::ResultTensors&>(*ran.results) = std::move(flight);
  return {};
}

/// Where results may be whole: partial dk and dv are rounded, and delta is of a rounded O.
void expect_right_as_on_gpus(const tool::Inputs& inputs, const tool::GroupResults& results,
                             const tool::Reference& reference) {
  const double largest = tool::largest_finite(reference.lse.view);
  const tool::Bars bars = tool::bars(inputs.problem.dtype, largest, true);
  auto checks = tool::check_measures(tool::measure_all(inputs, results, reference), bars);
  checks.push_back(tool::check_padding(inputs.problem, results));
  for (const tool::Check& check : checks) {
    EXPECT_TRUE(check.pass()) << check.name << ": " << check.value << " > " << check.bar;
  }
}

class Gathered : public testing::TestWithParam<Case> {};

TEST_P(Gathered, GradientsAreRight) {
  Case c = GetParam();
  c.forward = c.backward = "all_gather";
  const tool::Inputs inputs = inputs_of(c);
  const tool::Reference reference = reference_of(inputs);
  for (c.ranks = 2; c.ranks <= 4; ++c.ranks) {
    SCOPED_TRACE(text(c));
    std::vector<Ran> ranks(static_cast<size_t>(c.ranks));
    for_each_rank(make_threads_communicators(Topology::blocks(c.ranks, 1)),
                  [&](std::shared_ptr<Communicator> communicator) {
                    Ran& ran = ranks[static_cast<size_t>(communicator->rank())];
                    ran.status = run_rank(c, inputs, std::move(communicator), ran);
                  });
    tool::GroupResults results = tool::make_group_results(inputs.problem);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_TRUE(ranks[rank].status.ok()) << ranks[rank].status.error().text();
      const tool::RankResults& shard = *ranks[rank].results;
      const Schedule& schedule = shard.call->schedule(Direction::kBackward);
      EXPECT_TRUE(schedule.tiles.features.whole);
      EXPECT_EQ(ranks[rank].bytes, schedule.bytes_sent());
      EXPECT_TRUE(shard.call->record().value().gathers_whole);
      tool::gather(shard, shard.call->partition(), static_cast<int>(rank), results);
    }
    expect_right_as_on_gpus(inputs, results, reference);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Gathered,
    testing::Values(
        Case{.problem = "dtype=bf16 heads=4/2 dim=16 lengths=700 mask=causal window=150,0"},
        Case{.problem = "dtype=f16 heads=2/2 dim=10 dim_v=6 lengths=300,170,1,260 mask=causal",
             .partition = "balanced"},
        Case{.problem = "dtype=bf16 heads=3/1 dim=8 lengths=200 kv_lengths=260 mask=none"},
        // Keys that no query sees, and rows that hold no token.
        Case{.problem = "dtype=f32 heads=2/1 dim=8 lengths=90 kv_lengths=400 mask=causal"},
        Case{.problem = "dtype=f32 heads=2/2 dim=8 lengths=61,0,22 mask=causal window=9,3",
             .partition = "balanced"}));

}  // namespace
}  // namespace longspan::testkit
