#include "cuda/words.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "cuda/driver.h"

namespace longspan::cuda {
namespace {

constexpr size_t kMostAtOnce = 128;  // the driver takes fewer than 256

using BatchFunction = CUresult(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

CUdeviceptr address_of(uint32_t* word) { return reinterpret_cast<CUdeviceptr>(word); }

CUstreamBatchMemOpParams wait_for(uint32_t* word) {
  CUstreamBatchMemOpParams params = {};
  params.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  params.waitValue.address = address_of(word);
  params.waitValue.value = 1;
  params.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return params;
}

CUstreamBatchMemOpParams write_to(uint32_t* word, uint32_t value) {
  CUstreamBatchMemOpParams params = {};
  params.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  params.writeValue.address = address_of(word);
  params.writeValue.value = value;
  params.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return params;
}

}  // namespace

Status WordOperations::enqueue(Stream stream) {
  static const auto batch = driver_function<BatchFunction>("cuStreamBatchMemOp");
  if (!batch.ok()) return batch.error();
  std::array<CUstreamBatchMemOpParams, kMostAtOnce> params;
  for (size_t begin = 0; begin < operations_.size(); begin += kMostAtOnce) {
    const size_t count = std::min(kMostAtOnce, operations_.size() - begin);
    std::transform(
        operations_.begin() + static_cast<ptrdiff_t>(begin),
        operations_.begin() + static_cast<ptrdiff_t>(begin + count), params.begin(),
        [](const Operation& o) { return o.waits ? wait_for(o.word) : write_to(o.word, o.value); });
    const CUresult code = (*batch)(static_cast<CUstream>(stream.handle),
                                   static_cast<unsigned>(count), params.data(), 0);
    if (code != CUDA_SUCCESS) {
      return Error{ErrorCode::kDriver,
                   fmt::format("queueing waits and writes of flags: CUDA driver error {}",
                               static_cast<int>(code)),
                   "cuda"};
    }
  }
  operations_.clear();
  return {};
}

}  // namespace longspan::cuda
