// Without a device a program of tests/gpu fails before its first test.
#include <gtest/gtest.h>

#include "longspan/provider.h"

namespace longspan::testing {
namespace {

class NeedsDevice : public ::testing::Environment {
 public:
  void SetUp() override {
    const Result<Device> device = cuda_device(0);
    ASSERT_TRUE(device.ok()) << device.error().text();
    ASSERT_EQ(device->capability, 90) << device->product;
  }
};

[[maybe_unused]] const ::testing::Environment* const kNeedsDevice =
    ::testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace
}  // namespace longspan::testing
