#include "cuda/shared_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <bit>

#include "cuda/driver.h"

namespace longspan::cuda {
namespace {

using AttributesFunction = CUresult(unsigned, CUpointer_attribute*, void**, CUdeviceptr);

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryHandle));

}  // namespace

Result<Allocation> allocation_of(const void* address) {
  static const auto ask = driver_function<AttributesFunction>("cuPointerGetAttributes");
  if (!ask.ok()) return ask.error();
  CUdeviceptr base = 0;
  unsigned long long number = 0;
  int exportable = 0;
  std::array<CUpointer_attribute, 3> attributes = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                                   CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  std::array<void*, 3> values = {&base, &number, &exportable};
  const CUresult code = (*ask)(attributes.size(), attributes.data(), values.data(),
                               reinterpret_cast<CUdeviceptr>(address));
  if (code != CUDA_SUCCESS || base == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is no address of device memory", fmt::ptr(address)), "cuda"};
  }
  return Allocation{.base = base, .number = number, .exportable = exportable != 0};
}

Result<MemoryHandle> export_memory(uint64_t base) {
  const CaptureIsNoHindrance relaxed;
  cudaIpcMemHandle_t handle;
  LONGSPAN_CHECK_OK(status(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)),
                           "exporting memory to other processes"));
  return std::bit_cast<MemoryHandle>(handle);
}

Result<void*> map_memory(const MemoryHandle& handle) {
  const CaptureIsNoHindrance relaxed;
  void* base = nullptr;
  LONGSPAN_CHECK_OK(status(cudaIpcOpenMemHandle(&base, std::bit_cast<cudaIpcMemHandle_t>(handle),
                                                cudaIpcMemLazyEnablePeerAccess),
                           "mapping memory of another process"));
  return base;
}

void unmap_memory(void* base) {
  const CaptureIsNoHindrance relaxed;
  cudaIpcCloseMemHandle(base);
}

}  // namespace longspan::cuda
