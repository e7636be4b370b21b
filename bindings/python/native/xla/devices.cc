#include "devices.h"

#include <map>
#include <mutex>

namespace longspan::xla {
namespace {

struct Devices {
  std::mutex mutex;
  std::map<int, Device> made;
};

// NOTE: never destroyed. XLA may run handlers until the process ends.
Devices& devices() {
  static Devices* const all = new Devices;
  return *all;
}

Result<Device> make(int ordinal) {
  if (ordinal == kHost) return cpu_device();
  return cuda_device(ordinal);
}

}  // namespace

Result<const Device*> device_of(int ordinal) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  const auto found = all.made.find(ordinal);
  if (found != all.made.end()) return &found->second;
  LONGSPAN_TRY(Device device, make(ordinal));
  return &all.made.emplace(ordinal, std::move(device)).first->second;
}

}  // namespace longspan::xla
