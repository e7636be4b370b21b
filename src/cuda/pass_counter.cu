#include <cuda_runtime_api.h>

#include <atomic>
#include <utility>

#include "cuda/pass_counter.h"
#include "cuda/runtime.h"

namespace longspan::cuda {
namespace {

/// All who count are on one lane, so nobody counts at the same time.
__global__ void count_pass(uint64_t* count) {
  volatile uint64_t* const seen_by_host = count;
  *seen_by_host = *seen_by_host + 1;
}

}  // namespace

Result<PassCounter> PassCounter::make() {
  uint64_t* count = nullptr;
  LONGSPAN_CHECK_OK(
      status(cudaHostAlloc(&count, sizeof *count, cudaHostAllocMapped), "allocating a counter"));
  *count = 0;
  PassCounter counter(count);
  cudaFuncAttributes attributes;  // loads the kernel, which must not happen under capture
  LONGSPAN_CHECK_OK(
      status(cudaFuncGetAttributes(&attributes, count_pass), "loading a counting kernel"));
  return Result<PassCounter>(std::move(counter));
}

PassCounter::~PassCounter() {
  if (count_ != nullptr) cudaFreeHost(count_);
}

Status PassCounter::count(Stream stream) const {
  count_pass<<<1, 1, 0, static_cast<cudaStream_t>(stream.handle)>>>(count_);
  return status(cudaGetLastError(), "counting");
}

uint64_t PassCounter::passed() const {
  return std::atomic_ref<uint64_t>(*count_).load(std::memory_order_acquire);
}

}  // namespace longspan::cuda
