#include "describe.h"

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "longspan/libraries.h"
#include "request.h"
#include "sharded.h"
#include "single.h"

namespace longspan::xla {
namespace {

using nlohmann::json;

char* owned(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

char* answer(const Result<json>& result) {
  if (result.ok()) return owned(result->dump());
  const Error& error = result.error();
  return owned(json{{"error", {{"code", name(error.code)}, {"message", error.text()}}}}.dump());
}

json saved_of(const Call& call) {
  json saved = json::array();
  for (const BufferSpec& spec : call.saved_layout()) {
    if (spec.alias.empty()) saved.push_back({{"dtype", name(spec.dtype)}, {"shape", spec.shape}});
  }
  return saved;
}

Result<json> describe_single(const Asked& asked, bool gradients) {
  LONGSPAN_TRY(const auto found, SingleCall::find(asked));
  const Call& call = found->call();
  json workspace{{"forward", call.workspace_bytes(Direction::kForward)}};
  if (gradients) workspace["backward"] = call.workspace_bytes(Direction::kBackward);
  return json{{"problem", call.problem().text()},
              {"layout", name(call.problem().layout)},
              {"workspace", workspace},
              {"saved", saved_of(call)}};
}

json sent_by_rank(const Round& round) {
  json ranks = json::array();
  for (const auto& ranges : round.sent) {
    json rank = json::array();
    for (const RowRange& range : ranges) rank.push_back({range.source, range.target, range.rows});
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

json side_of(const Side& side) {
  json rounds = json::array();
  for (const Round& round : side.rounds.rounds) {
    rounds.push_back(
        {{"distance", round.distance}, {"rows", round.rows}, {"sent", sent_by_rank(round)}});
  }
  return {{"workspace", side.plan->workspace_bytes()},
          {"gather", side.rounds.gather},
          {"rounds", std::move(rounds)}};
}

Result<json> describe_sharded(const Asked& asked) {
  LONGSPAN_TRY(const auto call, ShardedCall::find(asked));
  const Problem& problem = call->problem();
  json result{{"problem", problem.text()},
              {"exact_o", call->keeps_exact_o()},
              {"forward", side_of(call->side(Direction::kForward))}};
  if (problem.alibi != Alibi::kNone) result["slopes"] = default_alibi_slopes(problem.heads_q);
  if (call->has_gradients()) result["backward"] = side_of(call->side(Direction::kBackward));
  return result;
}

Result<json> describe(const Asked& asked) {
  LONGSPAN_TRY(const Request request, parse_request(asked.request));
  return request.ranks == 1 ? describe_single(asked, request.gradients) : describe_sharded(asked);
}

json chosen(const Selection& selection) {
  return {selection.strategy->name, selection.strategy_reason, selection.provider->name(),
          selection.provider_reason};
}

/// A prepared problem as a plan.
Result<json> planned(const Problem& problem, const Explanation& explanation,
                     const Result<PlanRecord>& record) {
  if (!record.ok()) return record.error();
  return json{{"plan", record->to_bytes()},
              {"problem", problem.text()},
              {"layout", name(problem.layout)},
              {"partition", name(explanation.partition)},
              {"ranks", record->node_of_rank.size()},
              {"forward", chosen(explanation.forward)},
              {"backward", explanation.forward_only ? json() : chosen(explanation.backward)}};
}

Result<json> record(const Asked& asked) {
  LONGSPAN_TRY(const Request request, parse_request(asked.request));
  const std::string problem = request.plan ? request.plan->problem : std::string(asked.problem);
  const Asked whole{problem, asked.request, asked.ordinal};
  if (request.ranks == 1) {
    LONGSPAN_TRY(const auto found, SingleCall::find(whole));
    const Call& call = found->call();
    return planned(call.problem(), call.explanation(), call.record());
  }
  LONGSPAN_TRY(const auto call, ShardedCall::find(whole));
  return planned(call->problem(), call->explanation(), call->record());
}

json shard_of(const Shard& shard, const std::vector<int64_t>& global_rows) {
  json runs = json::array();
  for (const Run& run : shard.runs) {
    runs.push_back({run.row, global_rows[static_cast<size_t>(run.row)], run.tokens.begin,
                    run.tokens.stride, run.tokens.size(), run.valid});
  }
  return {{"rows", shard.rows}, {"batch", shard.batch}, {"runs", std::move(runs)}};
}

Result<PartitionChoice> partition_of(const Problem& problem, const Request& request) {
  if (request.partition == "auto") return choose_partition(problem, request.ranks);
  LONGSPAN_TRY(const PartitionKind kind, parse_partition(request.partition));
  return PartitionChoice{kind, "asked for"};
}

Result<json> shards(std::string_view problem_text, std::string_view request_text) {
  LONGSPAN_TRY(const Request request, parse_request(request_text));
  LONGSPAN_TRY(const Problem problem, parse_problem(problem_text));
  LONGSPAN_TRY(const PartitionChoice choice, partition_of(problem, request));
  LONGSPAN_TRY(const Partition partition, Partition::make(problem, choice.kind, request.ranks));
  json q = json::array();
  json k = json::array();
  for (int rank = 0; rank < request.ranks; ++rank) {
    q.push_back(shard_of(partition.q(rank), partition.q_indices(problem, rank)));
    k.push_back(shard_of(partition.k(rank), partition.k_indices(problem, rank)));
  }
  return json{{"partition", name(choice.kind)},
              {"reason", choice.reason},
              {"q", std::move(q)},
              {"k", std::move(k)}};
}

Result<json> set_store(const char* folder) {
  LONGSPAN_CHECK_OK(set_prepared_store(folder));
  return json::object();
}

}  // namespace
}  // namespace longspan::xla

char* longspan_xla_describe(const char* problem, const char* request, int32_t ordinal) {
  return longspan::xla::answer(longspan::xla::describe({problem, request, ordinal}));
}

char* longspan_xla_record(const char* problem, const char* request, int32_t ordinal) {
  return longspan::xla::answer(longspan::xla::record({problem, request, ordinal}));
}

char* longspan_xla_shards(const char* problem, const char* request) {
  return longspan::xla::answer(longspan::xla::shards(problem, request));
}

char* longspan_xla_set_prepared_store(const char* folder) {
  return longspan::xla::answer(longspan::xla::set_store(folder));
}

void longspan_xla_free(char* text) { std::free(text); }
