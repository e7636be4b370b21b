#include "longspan/device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "cuda/runtime.h"
#include "cuda/upload.h"

namespace longspan {

Result<int> cuda_device_count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const Status found = cuda::status(error, "looking for CUDA devices");
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}; a GPU and a driver for CUDA {}.{} or newer are needed, or the "
                    "device cpu",
                    found.error().message, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100),
        "cuda"};
  }
  LONGSPAN_CHECK_OK(found);
  return count;
}

Result<Device> cuda_device(int ordinal) {
  LONGSPAN_TRY(const int count, cuda_device_count());
  if (ordinal < 0 || ordinal >= count) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("device cuda:{} does not exist; this machine has {} of them", ordinal, count),
        "cuda"};
  }
  cudaDeviceProp properties;
  LONGSPAN_CHECK_OK(
      cuda::status(cudaGetDeviceProperties(&properties, ordinal), "reading device properties"));
  Device device;
  device.name = fmt::format("cuda:{}", ordinal);
  device.ordinal = ordinal;
  device.multiprocessors = properties.multiProcessorCount;
  device.capability = properties.major * 10 + properties.minor;
  device.product = properties.name;
  return device;
}

namespace cuda {

Result<std::shared_ptr<void>> upload(const Device& device, const void* host, size_t bytes) {
  const DeviceScope scope(device.ordinal);
  LONGSPAN_TRY(Memory memory, Memory::copy_of(host, bytes));
  const auto owner = std::make_shared<Memory>(std::move(memory));
  return std::shared_ptr<void>(owner, owner->data());
}

}  // namespace cuda

}  // namespace longspan
