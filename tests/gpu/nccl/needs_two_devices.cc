// Without two GPUs a program of tests/gpu/nccl fails before its first test. NOTE: counts devices in
// the driver's folder, because a process that will fork must not touch CUDA.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace longspan::testing {
namespace {

class NeedsTwoDevices : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    int count = 0;
    for (int i = 0; i < 64; ++i) {
      if (std::filesystem::exists("/dev/nvidia" + std::to_string(i))) ++count;
    }
    ASSERT_GE(count, 2) << "nccl needs a GPU for each rank: run this where there are two";
  }
};

[[maybe_unused]] const ::testing::Environment* const kNeedsTwoDevices =
    ::testing::AddGlobalTestEnvironment(new NeedsTwoDevices);

}  // namespace
}  // namespace longspan::testing
