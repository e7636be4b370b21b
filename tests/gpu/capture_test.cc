// A call that has not run before cannot be captured, and says so; nothing is lost by trying.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  return std::move(result).value();
}

TEST(Capture, OfAColdCallIsRefusedByDirection) {
  const Device device = must(cuda_device(0));
  const cuda::DeviceScope scope(0);
  const testkit::Case c{.problem = "dtype=bf16 heads=4/2 dim=64 lengths=300 mask=causal",
                        .provider = "cuda/reference"};
  const tool::Inputs inputs = testkit::inputs_of(c);
  const auto communicator =
      must(make_peer_communicators(Topology::blocks(1, 1), std::vector{device}))[0];
  const auto engine = must(Engine::create(testkit::options_of(c), communicator, device));
  const auto flight =
      must(DeviceFlight::make(inputs, must(engine->prepare(inputs.problem)), communicator, device));
  ASSERT_TRUE(flight->load(inputs).ok());
  const auto own = must(cuda::OwnedStream::make());
  auto* const stream = static_cast<cudaStream_t>(own.get().handle);
  const auto captured = [&](auto&& body) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const Status status = body();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
    return status;
  };
  const auto forward = [&] { return flight->forward(*engine, own.get()); };
  const auto backward = [&] { return flight->backward(*engine, own.get()); };
  const Status cold = captured(forward);
  ASSERT_FALSE(cold.ok());
  EXPECT_EQ(cold.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(cold.error().message, HasSubstr("run forward of this call once before"));
  ASSERT_TRUE(forward().ok());
  EXPECT_TRUE(captured(forward).ok());
  EXPECT_THAT(captured(backward).error().message, HasSubstr("run backward of this call once"));
  ASSERT_TRUE(backward().ok());
  EXPECT_TRUE(captured(backward).ok());
}

}  // namespace
}  // namespace longspan::testing
