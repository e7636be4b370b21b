// Where tiles are computed.
#pragma once

#include <memory>
#include <string>

#include "longspan/status.h"

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

/// A CUDA device. invalid_argument when there is none of this number, driver errors as they are,
/// unsupported when built without CUDA.
Result<Device> cuda_device(int ordinal = 0);

}  // namespace longspan
