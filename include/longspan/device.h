// Where tiles are computed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan {

class Workers;

/// Where tiles are computed. Copies share the worker threads.
struct Device {
  std::string name = "cpu";  // or "cuda:0", ...
  int threads = 1;
  std::shared_ptr<Workers> workers;
  int ordinal = -1;         // of a CUDA device
  int multiprocessors = 0;  // of it
  int capability = 0;       // 90: compute capability 9.0
  std::string product;      // "NVIDIA H200"

  bool is_cuda() const { return ordinal >= 0; }
};

/// The host's processor with `threads` threads (0: all cores). Ranks that are threads of one
/// process should share one device. The number of threads changes no bit of any result.
Device cpu_device(int threads = 0);

/// How many CUDA devices the driver shows; as cuda_device where there is no driver.
Result<int> cuda_device_count();

/// A CUDA device. invalid_argument when there is none of this number, driver errors as they are,
/// unsupported when there is no GPU or none that the driver can use, or built without CUDA.
Result<Device> cuda_device(int ordinal = 0);

/// Memory of a device for callers without an allocator of their own; null for 0 bytes. Host memory
/// is aligned to 64 bytes, device memory to 256. out_of_memory names the size.
Result<std::shared_ptr<void>> allocate_on(const Device& device, size_t bytes);
/// Complete on return. Either side may be the host's memory or the device's.
Status copy_bytes(const Device& device, void* to, const void* from, size_t bytes);
/// Sets every byte of memory of the device.
Status set_bytes(const Device& device, void* data, int value, size_t bytes);
/// Returns when everything queued on the stream is done; at once on the host.
Status synchronize(const Device& device, Stream stream);

}  // namespace longspan
