// Functions of the CUDA driver, found at run time: no binary links to the driver's library.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "cuda/runtime.h"

namespace longspan::cuda {

/// The driver's function `name` as CUDA 12.0 defines it. unsupported names what is missing.
template <class Function>
Result<Function*> driver_function(const char* name) {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  LONGSPAN_CHECK_OK(
      status(cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found),
             "looking for a function of the driver"));
  if (found != cudaDriverEntryPointSuccess) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the CUDA driver has no {} of 12.0; install a newer one", name),
                 "cuda"};
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace longspan::cuda
