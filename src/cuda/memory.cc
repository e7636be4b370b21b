// Memory of any device, for callers of the library.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda/runtime.h"
#include "longspan/device.h"

namespace longspan {
namespace {

constexpr size_t kHostAlignment = 64;

}  // namespace

Result<std::shared_ptr<void>> allocate_on(const Device& device, size_t bytes) {
  if (bytes == 0) return std::shared_ptr<void>();
  if (device.is_cuda()) {
    const cuda::DeviceScope scope(device.ordinal);
    LONGSPAN_TRY(cuda::Memory memory, cuda::Memory::make(bytes));
    const auto owner = std::make_shared<cuda::Memory>(std::move(memory));
    return std::shared_ptr<void>(owner, owner->data());
  }
  const size_t rounded = (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
  void* const data = std::aligned_alloc(kHostAlignment, rounded);
  if (data == nullptr) {
    return Error{ErrorCode::kOutOfMemory, fmt::format("allocating {} bytes", bytes), "device"};
  }
  return std::shared_ptr<void>(data, std::free);
}

Status copy_bytes(const Device& device, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  if (device.is_cuda()) {
    const cuda::DeviceScope scope(device.ordinal);
    return cuda::copy(to, from, bytes);
  }
  std::memcpy(to, from, bytes);
  return {};
}

Status set_bytes(const Device& device, void* data, int value, size_t bytes) {
  if (bytes == 0) return {};
  if (device.is_cuda()) {
    const cuda::DeviceScope scope(device.ordinal);
    return cuda::fill(data, value, bytes);
  }
  std::memset(data, value, bytes);
  return {};
}

Status synchronize(const Device& device, Stream stream) {
  if (!device.is_cuda()) return {};
  const cuda::DeviceScope scope(device.ordinal);
  return cuda::synchronize(stream);
}

}  // namespace longspan
