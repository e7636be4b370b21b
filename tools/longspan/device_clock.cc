#include "device_clock.h"

#include <chrono>

namespace longspan::tool {
namespace {

class HostClock : public DeviceClock {
 public:
  Stream stream() const override { return {}; }

  Status mark() override {
    marks_.push_back(std::chrono::steady_clock::now());
    return {};
  }

  Result<std::vector<double>> laps() override {
    std::vector<double> laps;
    for (size_t i = 1; i < marks_.size(); ++i) {
      laps.push_back(std::chrono::duration<double, std::micro>(marks_[i] - marks_[i - 1]).count());
    }
    marks_.clear();
    return laps;
  }

  Result<std::unique_ptr<Recording>> record(const std::function<Status()>&) override {
    return Error{ErrorCode::kUnsupported, "graphs are recorded on CUDA devices alone", "bench"};
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

Result<std::unique_ptr<DeviceClock>> DeviceClock::make(const Device& device) {
  if (device.is_cuda()) return make_cuda_clock(device);
  return std::unique_ptr<DeviceClock>(std::make_unique<HostClock>());
}

}  // namespace longspan::tool
