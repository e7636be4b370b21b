#include <fmt/format.h>

#include <new>

#include "longspan/provider.h"

namespace longspan {
namespace {

struct FreeAligned {
  void operator()(void* data) const {
    ::operator delete (data, std::align_val_t{kWorkspaceAlignment});
  }
};

template <class Run>
Status attend(const Provider& provider, const Device& device, const TileProblem& problem,
              Run&& run) {
  const Verdict verdict = provider.consider(problem, device);
  if (const Decline* decline = declined(verdict)) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} declines: {} ({})", provider.name(), decline->detail, name(decline->code)),
        "attend_tiles"};
  }
  LONGSPAN_TRY(const std::shared_ptr<const Plan> plan, provider.prepare(problem, device));
  const size_t bytes = plan->workspace_bytes();
  const std::unique_ptr<void, FreeAligned> scratch(
      ::operator new (bytes, std::align_val_t{kWorkspaceAlignment}, std::nothrow));
  if (!scratch) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("{} bytes of scratch for {}: use a smaller problem", bytes, provider.name()),
        "attend_tiles"};
  }
  return run(*plan, Workspace{scratch.get(), bytes});
}

}  // namespace

Status attend_tiles(const Provider& provider, const Device& device, const TileProblem& problem,
                    const ForwardTiles& tiles) {
  TileProblem request = problem;
  request.direction = Direction::kForward;
  return attend(provider, device, request, [&](const Plan& plan, Workspace workspace) {
    return plan.forward(tiles, workspace);
  });
}

Status attend_tiles(const Provider& provider, const Device& device, const TileProblem& problem,
                    const BackwardTiles& tiles) {
  TileProblem request = problem;
  request.direction = Direction::kBackward;
  return attend(provider, device, request, [&](const Plan& plan, Workspace workspace) {
    return plan.backward(tiles, workspace);
  });
}

}  // namespace longspan
