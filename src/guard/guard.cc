#include "guard/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "guard/device_guard.h"

namespace longspan::guard {
namespace {

class HostReport final : public Report {
 public:
  std::optional<Violation> take() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(violation_, std::nullopt);
  }
  void raise(const Violation& violation) {
    const std::lock_guard lock(mutex_);
    if (!violation_) violation_ = violation;
  }

 private:
  std::mutex mutex_;
  std::optional<Violation> violation_;
};

/// Sets every byte: NaN in every type.
void poison_view(const TensorView& view) {
  if (view.data == nullptr) return;
  const auto bytes = static_cast<size_t>(view.dim * size_of(view.dtype));
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      std::memset(static_cast<std::byte*>(view.data) + view.offset(row, head) * size_of(view.dtype),
                  0xff, bytes);
    }
  }
}

class HostGuard final : public Guard {
 public:
  HostGuard(std::vector<Predicate> predicates, std::shared_ptr<HostReport> report)
      : predicates_(std::move(predicates)), report_(std::move(report)) {}

  Status check(const Arrays& arrays, void* scratch, Stream) const override {
    const auto value = [&](const Predicate& p) {
      return arrays[static_cast<size_t>(p.array)][p.index];
    };
    const auto broken = std::find_if(predicates_.begin(), predicates_.end(), [&](const auto& p) {
      return value(p) < p.least || value(p) > p.most;
    });
    *static_cast<bool*>(scratch) = broken != predicates_.end();
    if (broken != predicates_.end()) report_->raise({*broken, value(*broken)});
    return {};
  }

  Status poison(std::span<const TensorView> outputs, const void* scratch, Stream) const override {
    if (!*static_cast<const bool*>(scratch)) return {};
    for (const TensorView& view : outputs) poison_view(view);
    return {};
  }

 private:
  std::vector<Predicate> predicates_;
  std::shared_ptr<HostReport> report_;
};

}  // namespace

Status check_policy(GuardPolicy policy, const Device& device) {
  if (policy == GuardPolicy::kReport || device.is_cuda()) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("guards=trap on device {}: only CUDA devices trap; use guards=report",
                           device.name),
               "guard"};
}

Result<std::shared_ptr<Report>> make_report(const Device& device) {
  if (device.is_cuda()) return make_device_report(device);
  return std::shared_ptr<Report>(std::make_shared<HostReport>());
}

Result<std::unique_ptr<const Guard>> make_guard(std::vector<Predicate> predicates,
                                                GuardPolicy policy, const Device& device,
                                                std::shared_ptr<Report> report) {
  if (device.is_cuda()) {
    return make_device_guard(std::move(predicates), policy, device, std::move(report));
  }
  return std::unique_ptr<const Guard>(std::make_unique<HostGuard>(
      std::move(predicates), std::static_pointer_cast<HostReport>(std::move(report))));
}

}  // namespace longspan::guard
