#include "providers/prepared/prepared.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "providers/prepared/choose.h"
#include "providers/prepared/plan.h"
#include "providers/prepared/rules.h"
#include "providers/prepared/sha256.h"
#include "providers/prepared/store.h"
#include "providers/rules.h"

namespace longspan {

constinit const PreparedKernels kPrepared;

namespace {

std::variant<prepared::Builds, Decline> chosen(const TileProblem& problem, const Device& device) {
  if (auto decline = prepared::refusal(problem, device)) return *decline;
  const prepared::Store* const store = prepared::store();
  if (store == nullptr) {
    return Decline{DeclineCode::kNotPrepared,
                   "no store of prepared kernels is named: make one with longspan prepare and name "
                   "it by set_prepared_store() (longspan --prepared)"};
  }
  return prepared::choose(problem, *store);
}

}  // namespace

/// Over the objects that a tile of the problem may be computed by: it chooses among these.
Result<std::string> PreparedKernels::identity(const Problem& problem, Direction direction,
                                              const Device&) const {
  const prepared::Store* const store = prepared::store();
  std::string sums;
  if (store != nullptr) {
    for (const prepared::Manifest& manifest : store->manifests()) {
      if (prepared::may_serve(manifest, problem, direction)) sums += manifest.sha256 + "\n";
    }
  }
  return prepared::sha256_of_text(std::move(sums));
}

Verdict PreparedKernels::consider(const TileProblem& problem, const Device& device) const {
  const auto found = chosen(problem, device);
  if (const auto* const decline = std::get_if<Decline>(&found)) return *decline;
  const auto& builds = std::get<prepared::Builds>(found);
  const prepared::Manifest& first = builds.kernels().front()->manifest();
  return Offer{.detail = fmt::format(
                   "prepared:{}, {} and {} more of {}", prepared::name(builds.engine()), first.name,
                   builds.kernels().size() - 1, first.path.substr(0, first.path.rfind('/'))),
               .partials_16bit = true};
}

Result<std::shared_ptr<const Plan>> PreparedKernels::prepare(const TileProblem& problem,
                                                             const Device& device) const {
  auto found = chosen(problem, device);
  if (const auto* const decline = std::get_if<Decline>(&found)) {
    LONGSPAN_CHECK_OK(preparable(*decline));
  }
  return std::shared_ptr<const Plan>(std::make_shared<prepared::PreparedPlan>(
      problem, device.ordinal, std::get<prepared::Builds>(std::move(found))));
}

}  // namespace longspan
