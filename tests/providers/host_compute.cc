#include <cstdint>
#include <vector>

#include "providers/lane.h"

namespace longspan::testing {
namespace {

struct Memory64 {
  std::vector<uint64_t> storage;
  Workspace workspace;
};

Memory64 poisoned(size_t bytes) {
  Memory64 m;
  m.storage.assign(bytes / 8 + 16, ~uint64_t{0});  // NaN in every type
  const uintptr_t start = reinterpret_cast<uintptr_t>(m.storage.data());
  const uintptr_t aligned =
      (start + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  m.workspace = {reinterpret_cast<void*>(aligned), bytes};
  return m;
}

}  // namespace

Status compute_on_host(const Provider& provider, const Device& device, const TileProblem& problem,
                       const ForwardTiles& tiles) {
  LONGSPAN_TRY(const auto plan, provider.prepare(problem, device));
  const Memory64 memory = poisoned(plan->workspace_bytes());
  return plan->forward(tiles, memory.workspace);
}

Status compute_on_host(const Provider& provider, const Device& device, const TileProblem& problem,
                       const BackwardTiles& tiles) {
  LONGSPAN_TRY(const auto plan, provider.prepare(problem, device));
  const Memory64 memory = poisoned(plan->workspace_bytes());
  return plan->backward(tiles, memory.workspace);
}

}  // namespace longspan::testing
