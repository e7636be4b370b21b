#include "testkit/groups.h"

#include <optional>
#include <thread>
#include <utility>

#include "rank.h"
#include "testkit/modifications.h"

namespace longspan::testkit {
namespace {

using RankOutcome = std::optional<Result<tool::RankResults>>;

/// Whole results; the error of the first rank that has one.
Result<tool::GroupResults> gathered(const Case& c, const tool::Inputs& inputs,
                                    const std::vector<RankOutcome>& ranks) {
  tool::GroupResults whole = tool::make_group_results(inputs.problem, c.backward == kNoStrategy);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank]->ok()) return ranks[rank]->error();
    const tool::RankResults& shard = ranks[rank]->value();
    tool::gather(shard, shard.call->partition(), static_cast<int>(rank), whole);
    whole.call = shard.call;
  }
  return whole;
}

using Play = std::function<Status(Engine& engine, Flight& flight, int rank)>;

/// One flight a rank, and what `play` makes of it.
Result<tool::GroupResults> play_flights(const Case& c, const tool::Inputs& inputs,
                                        const Play& play) {
  Communicators communicators = make_threads_communicators(Topology::blocks(c.ranks, c.nodes));
  std::vector<RankOutcome> ranks(communicators.size());
  for_each_rank(std::move(communicators), [&](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank();
    ranks[static_cast<size_t>(rank)] = [&]() -> Result<tool::RankResults> {
      LONGSPAN_TRY(const auto engine,
                   Engine::create(options_of(c), std::move(communicator), shared_device()));
      LONGSPAN_TRY(auto call, engine->prepare(inputs.declared()));
      Flight flight = make_flight(inputs, std::move(call), rank);
      LONGSPAN_CHECK_OK(play(*engine, flight, rank));
      tool::RankResults results;
      results.call = flight.call;
      static_cast<tool::ResultTensors&>(results) = std::move(flight);
      return results;
    }();
  });
  return gathered(c, inputs, ranks);
}

}  // namespace

void for_each_rank(Communicators communicators,
                   const std::function<void(std::shared_ptr<Communicator>)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(communicators.size());
  for (auto& communicator : communicators) {
    threads.emplace_back(
        [&body, own = std::move(communicator)]() mutable { body(std::move(own)); });
  }
  for (std::thread& thread : threads) thread.join();
}

Result<tool::GroupResults> run_group(const Case& c, const tool::Inputs& inputs,
                                     Communicators communicators) {
  std::vector<RankOutcome> ranks(communicators.size());
  for_each_rank(std::move(communicators), [&](std::shared_ptr<Communicator> communicator) {
    const auto rank = static_cast<size_t>(communicator->rank());
    ranks[rank] = tool::run_rank({.inputs = &inputs,
                                  .options = options_of(c),
                                  .communicator = std::move(communicator),
                                  .device = shared_device()});
  });
  return gathered(c, inputs, ranks);
}

Result<tool::GroupResults> run_flights(const Case& c, const tool::Inputs& inputs,
                                       const std::function<void(Flight&)>& edit) {
  return play_flights(c, inputs, [&](Engine& engine, Flight& flight, int) -> Status {
    edit(flight);
    LONGSPAN_CHECK_OK(forward(engine, flight));
    return c.backward == kNoStrategy ? Status() : backward(engine, flight);
  });
}

Result<tool::GroupResults> run_backward(const Case& c, const tool::Inputs& inputs,
                                        const tool::GroupResults& forward) {
  return play_flights(c, inputs, [&](Engine& engine, Flight& flight, int rank) {
    const std::vector<int64_t> rows = flight.call->partition().q_indices(inputs.problem, rank);
    tool::scatter_rows(forward.o.view, flight.o.view, rows);
    tool::scatter_rows(forward.lse.view, flight.lse.view, rows);
    return backward(engine, flight);
  });
}

Result<std::vector<std::shared_ptr<const Call>>> prepare_group(const Case& c) {
  LONGSPAN_TRY(Problem problem, parse_problem(c.problem));
  problem.modification = modification_named(c.modification);
  Communicators communicators = make_threads_communicators(Topology::blocks(c.ranks, c.nodes));
  std::vector<std::shared_ptr<const Call>> calls(communicators.size());
  std::vector<Status> statuses(communicators.size());
  for_each_rank(std::move(communicators), [&](std::shared_ptr<Communicator> communicator) {
    const auto rank = static_cast<size_t>(communicator->rank());
    statuses[rank] = [&]() -> Status {
      LONGSPAN_TRY(const auto engine,
                   Engine::create(options_of(c), std::move(communicator), shared_device()));
      LONGSPAN_TRY(calls[rank], engine->prepare(problem));
      return {};
    }();
  });
  for (const Status& status : statuses) LONGSPAN_CHECK_OK(status);
  return calls;
}

}  // namespace longspan::testkit
