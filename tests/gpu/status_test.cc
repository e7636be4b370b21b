// Failures of the CUDA runtime.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "cuda/runtime.h"

namespace longspan::testing {
namespace {

TEST(CudaStatus, AFailureIsToldOnce) {
  const auto memory = cuda::Memory::make(size_t{1} << 62);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
  // What the launch after this asks for.
  EXPECT_TRUE(cuda::status(cudaGetLastError(), "launching").ok());
}

}  // namespace
}  // namespace longspan::testing
