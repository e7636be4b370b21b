#include "plan/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace longspan {
namespace {

std::optional<Decline> refusal(PlanCache& cache, const Provider& provider,
                               const ProviderQuestion& question) {
  const Routing& routing = question.routing;
  if (routing.mode == RoutingMode::kOff && provider.name() == routing.provider) {
    return Decline{DeclineCode::kOff, fmt::format("barred by off:{}", routing.provider)};
  }
  for (const TileProblem& problem : question.problems) {
    const Verdict verdict = cache.consider(provider, problem, question.device);
    if (const Decline* decline = declined(verdict)) return *decline;
    if (question.refuse_16bit_partials && std::get<Offer>(verdict).partials_16bit) {
      return Decline{DeclineCode::kPartials,
                     "partials=16bit, but FP32 partial results are required"};
    }
  }
  return std::nullopt;
}

/// Who is best of those that offer, and why.
struct Best {
  const Provider* provider = nullptr;
  std::string reason = "best that offers";
};

Best best_of(std::span<const Provider* const> offers, const RoutingRow* measured) {
  if (offers.empty()) return {};
  Best best{offers.front()};
  const MeasuredTime* first = nullptr;
  for (const MeasuredTime& time :
       measured == nullptr ? std::span<const MeasuredTime>() : std::span(measured->times)) {
    const auto offer = std::ranges::find(offers, time.provider, &Provider::name);
    if (offer == offers.end()) continue;
    if (first != nullptr) {
      best.reason = fmt::format("measured table: {} {:.2f} of {}", first->provider,
                                first->microseconds / time.microseconds, time.provider);
      break;
    }
    first = &time;
    best = {*offer, "measured table: the only one of its row that offers"};
  }
  return best;
}

std::string why(const Routing& routing, const Best& best, const ProviderChoice& choice) {
  if (routing.mode == RoutingMode::kRequire) return "required";
  if (routing.mode != RoutingMode::kPrefer) return best.reason;
  if (choice.provider->name() == routing.provider) return "preferred";
  for (const NamedDecline& d : choice.declines) {
    if (d.name == routing.provider) {
      return fmt::format("{}; preferred {} declined: {}", best.reason, d.name, d.decline.detail);
    }
  }
  return best.reason;
}

}  // namespace

ProviderChoice select_provider(PlanCache& cache, std::span<const Provider* const> providers,
                               const ProviderQuestion& question) {
  const Routing& routing = question.routing;
  const bool named = routing.mode == RoutingMode::kPrefer || routing.mode == RoutingMode::kRequire;
  ProviderChoice choice;
  std::vector<const Provider*> offers;
  const Provider* wanted = nullptr;
  for (const Provider* provider : providers) {
    const std::optional<Decline> decline = refusal(cache, *provider, question);
    if (decline) {
      const Direction direction =
          question.problems.empty() ? Direction::kForward : question.problems[0].direction;
      choice.declines.push_back(
          {std::string(provider->name()), std::string(name(direction)), *decline});
      continue;
    }
    offers.push_back(provider);
    if (named && provider->name() == routing.provider) wanted = provider;
  }
  const Best best = best_of(offers, question.measured);
  const bool takes_wanted = routing.mode == RoutingMode::kRequire || wanted != nullptr;
  choice.provider = takes_wanted ? wanted : best.provider;
  if (choice.provider != nullptr) choice.reason = why(routing, best, choice);
  return choice;
}

}  // namespace longspan
