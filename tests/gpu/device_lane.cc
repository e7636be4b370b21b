#include <algorithm>
#include <iterator>
#include <utility>

#include "gpu/device_tensors.h"
#include "providers/lane.h"
#include "providers/support.h"

namespace longspan::testing {
namespace {

/// Stands for a device while test names are made, which needs none.
Device pretended() {
  Device device;
  device.name = "cuda:0";
  device.ordinal = 0;
  device.multiprocessors = 132;
  device.capability = 90;
  return device;
}

bool on_devices(const Provider& provider) {
  const TileProblem problem{.dtype = DType::kBF16,
                            .heads_q = 1,
                            .heads_kv = 1,
                            .dim_qk = 64,
                            .dim_v = 64,
                            .capacity_q = 128,
                            .capacity_k = 128};
  const Verdict verdict = provider.consider(problem, pretended());
  const Decline* const decline = declined(verdict);
  if (decline == nullptr) return true;
  constexpr DeclineCode kElsewhere[] = {DeclineCode::kDevice, DeclineCode::kNotBuilt,
                                        DeclineCode::kNotPrepared};
  return std::ranges::find(kElsewhere, decline->code) == std::end(kElsewhere);
}

std::vector<const Provider*> selected(bool (*wanted)(const Provider&)) {
  std::vector<const Provider*> result;
  for (const Provider* provider : providers()) {
    if (wanted(*provider)) result.push_back(provider);
  }
  return result;
}

Status run(const Plan& plan, const ForwardTiles& call, Workspace workspace) {
  return plan.forward(call, workspace);
}
Status run(const Plan& plan, const BackwardTiles& call, Workspace workspace) {
  return plan.backward(call, workspace);
}

template <class Tiles>
Status compute_on_device(const Provider& provider, const Device& device, const TileProblem& problem,
                         Tiles call) {
  const cuda::DeviceScope scope(device.ordinal);
  LONGSPAN_TRY(const auto plan, provider.prepare(problem, device));
  LONGSPAN_TRY(const auto staged, plan->stage(call.tiles));
  LONGSPAN_TRY(const auto stream, cuda::OwnedStream::make());
  LONGSPAN_TRY(const auto workspace, GuardedMemory::poisoned(plan->workspace_bytes()));
  DeviceTensors tensors;
  LONGSPAN_CHECK_OK(tensors.move(call));
  call.stream = stream.get();
  call.staged = staged.get();
  LONGSPAN_CHECK_OK(run(*plan, call, {workspace.data(), plan->workspace_bytes()}));
  LONGSPAN_CHECK_OK(cuda::synchronize(stream.get()));
  LONGSPAN_CHECK_OK(tensors.copy_back());
  const auto scratch = workspace.read();
  if (!scratch.ok()) return scratch.error();
  return {};
}

}  // namespace

std::vector<const Provider*> lane_providers() { return selected(on_devices); }

std::vector<const Provider*> compared_providers() { return lane_providers(); }

std::vector<const Provider*> fixed_order_providers() {
  return selected([](const Provider& provider) { return provider.name() == "cuda/reference"; });
}

Device lane_device(int) {
  static const Result<Device> device = cuda_device(0);
  return device.ok() ? *device : pretended();
}

bool offered(const Provider& provider, const Device& device, const TileProblem& problem) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    TileProblem asked = problem;
    asked.direction = direction;
    const Verdict verdict = provider.consider(asked, device);
    const Decline* const decline = declined(verdict);
    if (decline == nullptr) continue;
    if (is_oracle(provider)) {  // which takes everything but callbacks
      EXPECT_EQ(decline->code, DeclineCode::kModification) << decline->detail;
      EXPECT_TRUE(problem.features.modification.has_value()) << decline->detail;
    }
    return false;
  }
  return true;
}

Status compute(const Provider& provider, const Device& device, const TileProblem& problem,
               const ForwardTiles& tiles) {
  return device.is_cuda() ? compute_on_device(provider, device, problem, tiles)
                          : compute_on_host(provider, device, problem, tiles);
}

Status compute(const Provider& provider, const Device& device, const TileProblem& problem,
               const BackwardTiles& tiles) {
  return device.is_cuda() ? compute_on_device(provider, device, problem, tiles)
                          : compute_on_host(provider, device, problem, tiles);
}

}  // namespace longspan::testing
