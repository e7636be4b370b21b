#include <fmt/format.h>

#include <new>

#include "longspan/provider.h"
#include "providers/cuda/on_device.h"

namespace longspan {
namespace {

struct FreeAligned {
  void operator()(void* data) const {
    ::operator delete (data, std::align_val_t{kWorkspaceAlignment});
  }
};

Status with_host_scratch(size_t bytes, const std::function<Status(Workspace)>& body) {
  const std::unique_ptr<void, FreeAligned> scratch(
      ::operator new (bytes, std::align_val_t{kWorkspaceAlignment}, std::nothrow));
  if (!scratch) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("{} bytes of scratch: use a smaller problem", bytes), "attend_tiles"};
  }
  return body({scratch.get(), bytes});
}

Status compute(const Plan& plan, const ForwardTiles& tiles, Workspace workspace) {
  return plan.forward(tiles, workspace);
}
Status compute(const Plan& plan, const BackwardTiles& tiles, Workspace workspace) {
  return plan.backward(tiles, workspace);
}

template <class Tiles>
Status attend(const Provider& provider, const Device& device, const TileProblem& problem,
              Tiles tiles) {
  LONGSPAN_TRY(const std::shared_ptr<const Plan> plan, provider.prepare(problem, device));
  LONGSPAN_TRY(const std::shared_ptr<const Staged> staged, plan->stage(tiles.tiles));
  tiles.staged = staged.get();
  const auto body = [&](Workspace workspace) { return compute(*plan, tiles, workspace); };
  const size_t bytes = plan->workspace_bytes();
  return device.is_cuda() ? cuda::with_scratch(bytes, tiles.stream, body)
                          : with_host_scratch(bytes, body);
}

template <class Tiles>
Status attend_offered(const Provider& provider, const Device& device, TileProblem problem,
                      Direction direction, const Tiles& tiles) {
  problem.direction = direction;
  const Verdict verdict = provider.consider(problem, device);
  if (const Decline* decline = declined(verdict)) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} declines: {} ({})", provider.name(), decline->detail, name(decline->code)),
        "attend_tiles"};
  }
  const auto body = [&] { return attend(provider, device, problem, tiles); };
  return device.is_cuda() ? cuda::on_device(device, body) : body();
}

}  // namespace

Status attend_tiles(const Provider& provider, const Device& device, const TileProblem& problem,
                    const ForwardTiles& tiles) {
  return attend_offered(provider, device, problem, Direction::kForward, tiles);
}

Status attend_tiles(const Provider& provider, const Device& device, const TileProblem& problem,
                    const BackwardTiles& tiles) {
  return attend_offered(provider, device, problem, Direction::kBackward, tiles);
}

}  // namespace longspan
