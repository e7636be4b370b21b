#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "cuda/upload.h"

namespace longspan {

namespace {

Error not_built() {
  return {ErrorCode::kUnsupported,
          "built without CUDA; configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 is installed",
          "cuda"};
}

}  // namespace

Result<int> cuda_device_count() { return not_built(); }

Result<Device> cuda_device(int) { return not_built(); }

Result<std::shared_ptr<void>> allocate_on(const Device&, size_t bytes) {
  if (bytes == 0) return std::shared_ptr<void>();
  constexpr size_t kAlignment = 64;
  void* const data =
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr) {
    return Error{ErrorCode::kOutOfMemory, fmt::format("allocating {} bytes", bytes), "device"};
  }
  return std::shared_ptr<void>(data, std::free);
}

Status copy_bytes(const Device&, void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return {};
}

Status set_bytes(const Device&, void* data, int value, size_t bytes) {
  if (bytes > 0) std::memset(data, value, bytes);
  return {};
}

Status synchronize(const Device&, Stream) { return {}; }

Result<std::shared_ptr<void>> cuda::upload(const Device&, const void*, size_t) {
  return not_built();
}

}  // namespace longspan
