#include "cuda/identity.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "cuda/runtime.h"

namespace longspan::cuda {

Result<std::array<uint64_t, 2>> identity(int ordinal) {
  cudaDeviceProp properties;
  LONGSPAN_CHECK_OK(
      status(cudaGetDeviceProperties(&properties, ordinal), "reading device properties"));
  std::array<uint64_t, 2> words = {};
  static_assert(sizeof properties.uuid == sizeof words);
  std::memcpy(words.data(), &properties.uuid, sizeof words);
  return words;
}

}  // namespace longspan::cuda
