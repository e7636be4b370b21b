#include "request.h"

#include <fmt/format.h>

#include <charconv>

namespace longspan::xla {
namespace {

Error invalid(std::string_view key, std::string_view value, std::string_view allowed) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}={}: one of {}", key, value, allowed),
          "request"};
}

Result<int> parse_ranks(std::string_view value) {
  int ranks = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), ranks);
  if (code != std::errc() || end != value.data() + value.size() || ranks < 1) {
    return invalid("ranks", value, "the integers from 1");
  }
  return ranks;
}

Status set(Request& request, std::string_view key, std::string_view value) {
  if (key == "ranks") {
    LONGSPAN_TRY(request.ranks, parse_ranks(value));
  } else if (key == "strategy") {
    if (value != "ring" && value != "all_gather") {
      return invalid(key, value, "ring, all_gather: in JAX heads are not exchanged");
    }
    request.strategy = value;
  } else if (key == "partition") {
    request.partition = value;
  } else if (key == "forward") {
    LONGSPAN_TRY(request.forward, parse_routing(value));
  } else if (key == "backward") {
    LONGSPAN_TRY(request.backward, parse_routing(value));
  } else if (key == "gradients") {
    if (value != "true" && value != "false") return invalid(key, value, "true, false");
    request.gradients = value == "true";
  } else {
    return invalid("key", key, "ranks, strategy, partition, forward, backward, gradients");
  }
  return {};
}

Result<Request> request_of_plan(std::string_view bytes) {
  LONGSPAN_TRY(PlanRecord plan, PlanRecord::from_bytes(bytes));
  Request request;
  request.ranks = static_cast<int>(plan.node_of_rank.size());
  request.partition = name(plan.partition);
  request.gradients = plan.backward.has_value();
  const std::string& backward = plan.backward ? plan.backward->strategy : plan.forward.strategy;
  if (request.ranks > 1) {
    LONGSPAN_CHECK_OK(set(request, "strategy", plan.forward.strategy));
    LONGSPAN_CHECK_OK(set(request, "strategy", backward));
  }
  if (backward != plan.forward.strategy && request.ranks > 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the plan's strategies are {} forward and {} backward; in JAX both "
                             "directions have the same",
                             plan.forward.strategy, backward),
                 "request"};
  }
  request.plan = std::move(plan);
  return request;
}

}  // namespace

Topology Request::topology() const {
  return plan ? Topology{plan->node_of_rank} : Topology::blocks(ranks, 1);
}

Result<Request> parse_request(std::string_view text) {
  constexpr std::string_view kPlan = "plan=";
  if (text.starts_with(kPlan)) return request_of_plan(text.substr(kPlan.size()));
  Request request;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return invalid("pair", pair, "the form key=value");
    LONGSPAN_CHECK_OK(set(request, pair.substr(0, equals), pair.substr(equals + 1)));
  }
  return request;
}

Result<Request> request_of(const Asked& asked) {
  LONGSPAN_TRY(Request request, parse_request(asked.request));
  if (!request.plan || request.plan->problem == asked.problem) return request;
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("the plan is of the problem \"{}\", the call of \"{}\"; give a plan of it",
                  request.plan->problem, asked.problem),
      "request"};
}

Options options_of(const Request& request) {
  Options options;
  if (request.plan) return options;
  options.forward.routing = request.forward;
  options.backward.routing = request.backward;
  options.partition = request.partition;
  if (request.ranks > 1) {
    options.forward.strategy = request.strategy;
    options.backward.strategy = request.strategy;
  }
  if (!request.gradients) options.backward.strategy = kNoStrategy;
  return options;
}

}  // namespace longspan::xla
