#include "plan/select.h"

#include <fmt/format.h>

#include <optional>

namespace longspan {
namespace {

std::optional<Decline> refusal(PlanCache& cache, const Provider& provider,
                               std::span<const TileProblem> problems, const Device& device,
                               const Routing& routing, bool refuse_16bit_partials) {
  if (routing.mode == RoutingMode::kOff && provider.name() == routing.provider) {
    return Decline{DeclineCode::kOff, fmt::format("barred by off:{}", routing.provider)};
  }
  for (const TileProblem& problem : problems) {
    const Verdict verdict = cache.consider(provider, problem, device);
    if (const Decline* decline = declined(verdict)) return *decline;
    if (refuse_16bit_partials && std::get<Offer>(verdict).partials_16bit) {
      return Decline{DeclineCode::kPartials,
                     "partials=16bit, but FP32 partial results are required"};
    }
  }
  return std::nullopt;
}

std::string why(const Routing& routing, const Provider& chosen, const ProviderChoice& choice) {
  if (routing.mode == RoutingMode::kRequire) return "required";
  if (routing.mode != RoutingMode::kPrefer) return "best that offers";
  if (chosen.name() == routing.provider) return "preferred";
  for (const NamedDecline& d : choice.declines) {
    if (d.name == routing.provider) {
      return fmt::format("best that offers; preferred {} declined: {}", d.name, d.decline.detail);
    }
  }
  return "best that offers";
}

}  // namespace

ProviderChoice select_provider(PlanCache& cache, std::span<const Provider* const> providers,
                               std::span<const TileProblem> problems, const Device& device,
                               const Routing& routing, bool refuse_16bit_partials) {
  const bool named = routing.mode == RoutingMode::kPrefer || routing.mode == RoutingMode::kRequire;
  ProviderChoice choice;
  const Provider* best = nullptr;
  const Provider* wanted = nullptr;
  for (const Provider* provider : providers) {
    const std::optional<Decline> decline =
        refusal(cache, *provider, problems, device, routing, refuse_16bit_partials);
    if (decline) {
      const Direction direction = problems.empty() ? Direction::kForward : problems[0].direction;
      choice.declines.push_back(
          {std::string(provider->name()), std::string(name(direction)), *decline});
      continue;
    }
    if (best == nullptr) best = provider;
    if (named && provider->name() == routing.provider) wanted = provider;
  }
  choice.provider = routing.mode == RoutingMode::kRequire || wanted != nullptr ? wanted : best;
  if (choice.provider != nullptr) choice.reason = why(routing, *choice.provider, choice);
  return choice;
}

}  // namespace longspan
