#include "providers/hopper/hopper.h"

#include <fmt/format.h>

#include "providers/hopper/backward/plan.h"
#include "providers/hopper/heuristics.h"
#include "providers/hopper/plan.h"
#include "providers/hopper/rules.h"
#include "providers/rules.h"

namespace longspan {

namespace {

Offer offer(std::string_view columns, const Features& features) {
  return {.detail = fmt::format("sm_90a kernels of {} columns{}, FP32 partial results", columns,
                                hopper::has_terms(features) ? " with terms" : "")};
}

}  // namespace

constinit const Hopper kHopper;

Verdict Hopper::consider(const TileProblem& problem, const Device& device) const {
  if (auto decline = hopper::refusal(problem, device)) return *decline;
  if (problem.direction == Direction::kBackward) {
    return offer(fmt::format("{}", hopper::gradient_columns(problem.dim_qk, problem.dim_v).all),
                 problem.features);
  }
  const auto most = hopper::extents(hopper::narrowest_shape(problem.dim_qk, problem.dim_v));
  const std::string columns = most.dim == most.dim_v ? fmt::format("{}", most.dim)
                                                     : fmt::format("{}/{}", most.dim, most.dim_v);
  return offer(columns, problem.features);
}

Verdict Hopper::consider_pulls(const TileProblem& problem, const Device& device) const {
  if (auto decline = hopper::refusal(problem, device)) return *decline;
  if (auto decline = hopper::pull_refusal(problem)) return *decline;
  return Offer{.detail = "keys and values are pulled by the launch that reads them"};
}

Result<std::shared_ptr<const Plan>> Hopper::prepare(const TileProblem& problem,
                                                    const Device& device) const {
  LONGSPAN_CHECK_OK(preparable(hopper::refusal(problem, device)));
  if (problem.direction == Direction::kBackward) {
    return std::shared_ptr<const Plan>(std::make_shared<hopper::BackwardPlan>(problem, device));
  }
  return std::shared_ptr<const Plan>(std::make_shared<hopper::HopperPlan>(problem, device));
}

}  // namespace longspan
