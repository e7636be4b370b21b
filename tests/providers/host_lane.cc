#include "providers/lane.h"
#include "providers/support.h"

namespace longspan::testing {

std::vector<const Provider*> lane_providers() { return {&tiled(), &reference()}; }

std::vector<const Provider*> compared_providers() { return {&tiled()}; }

std::vector<const Provider*> fixed_order_providers() { return {&tiled()}; }

Device lane_device(int threads) { return device(threads); }

bool offered(const Provider& provider, const Device& device, const TileProblem& problem) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    TileProblem asked = problem;
    asked.direction = direction;
    const Verdict verdict = provider.consider(asked, device);
    if (const Decline* decline = declined(verdict)) {
      ADD_FAILURE() << provider.name() << " declines: " << decline->detail;
      return false;
    }
  }
  return true;
}

Status compute(const Provider& provider, const Device& device, const TileProblem& problem,
               const ForwardTiles& tiles) {
  return compute_on_host(provider, device, problem, tiles);
}

Status compute(const Provider& provider, const Device& device, const TileProblem& problem,
               const BackwardTiles& tiles) {
  return compute_on_host(provider, device, problem, tiles);
}

}  // namespace longspan::testing
