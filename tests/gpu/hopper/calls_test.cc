// Calls that are repeated, captured and replayed: the same bits over poisoned results.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gpu/device_tensors.h"
#include "gpu/graph.h"
#include "gpu/hopper/against_reference.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr int kRepeats = 100;

/// One prepared call on device copies of a case's tensors, and its results.
class DeviceCall {
 public:
  DeviceCall(const Case& c, const Inputs& in, Carry& results, Stream stream)
      : results_(results),
        call_{.q = in.q.view(),
              .k = in.k.view(),
              .v = in.v.view(),
              .o = results.o.view(),
              .lse = results.lse.view(),
              .tiles = c.tiles,
              .scale = c.scale,
              .stream = stream} {}

  Status prepare(const TileProblem& problem) {
    LONGSPAN_TRY(plan_, kHopper.prepare(problem, lane_device(1)));
    LONGSPAN_TRY(staged_, plan_->stage(call_.tiles));
    LONGSPAN_TRY(auto workspace, GuardedMemory::poisoned(plan_->workspace_bytes()));
    workspace_ = std::make_unique<GuardedMemory>(std::move(workspace));
    call_.staged = staged_.get();
    return tensors_.move(call_);
  }
  Status enqueue() const {
    return plan_->forward(call_, {workspace_->data(), plan_->workspace_bytes()});
  }
  /// Uploads what the results were at first, runs `body` and returns what the results are.
  template <class Body>
  std::vector<double> after(Body&& body) {
    results_.o.fill(initial_);
    results_.lse.fill(initial_ == 0 ? -INFINITY : NAN);
    EXPECT_TRUE(tensors_.upload().ok());
    body();
    const Status copied = tensors_.copy_back();
    EXPECT_TRUE(copied.ok()) << copied.error().text();
    std::vector<double> values = results_.o.values();
    const std::vector<double> lse = results_.lse.values();
    values.insert(values.end(), lse.begin(), lse.end());
    return values;
  }
  void starts_from(double value) { initial_ = value; }

 private:
  Carry& results_;
  ForwardTiles call_;
  DeviceTensors tensors_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Staged> staged_;
  std::unique_ptr<GuardedMemory> workspace_;
  double initial_ = NAN;
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

void repeat_and_replay(Dims dims, DType dtype, bool whole) {
  const int64_t dim = dims.qk;
  Case c = make_case(1500, 1400, dim, dims.v, dtype);
  c.problem.features.whole = whole;
  c.tiles = {make_placed(0, 700, 0, 700, {-kUnbounded, 0}), make_placed(710, 330, 690, 600, {}),
             make_placed(1100, 400, 1000, 400, {-300, 20})};
  const Inputs in = make_inputs(c, static_cast<uint64_t>(dim));
  Carry results{empty_carry(c, whole ? dtype : DType::kF32).o, empty_carry(c, DType::kF32).lse};
  const Device device = lane_device(1);
  const cuda::DeviceScope scope(device.ordinal);
  const auto stream = cuda::OwnedStream::make();
  ASSERT_TRUE(stream.ok());
  DeviceCall call(c, in, results, stream->get());
  if (!whole) call.starts_from(0);
  const Status prepared = call.prepare(c.problem);
  ASSERT_TRUE(prepared.ok()) << prepared.error().text();
  const auto direct = [&] {
    const Status status = call.enqueue();
    EXPECT_TRUE(status.ok()) << status.error().text();
    EXPECT_TRUE(cuda::synchronize(stream->get()).ok());
  };
  const std::vector<double> first = call.after(direct);
  for (int i = 1; i < kRepeats; ++i) {
    ASSERT_TRUE(same_bits(call.after(direct), first)) << "dim " << dim << " repeat " << i;
  }
  const Graph graph(stream->get(), [&] { return call.enqueue(); });
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(same_bits(call.after([&] { graph.replay(); }), first)) << "dim " << dim;
  }
}

class HopperCalls : public ::testing::TestWithParam<Dims> {};
INSTANTIATE_TEST_SUITE_P(Dims, HopperCalls, ::testing::ValuesIn(kKernelDims));

TEST_P(HopperCalls, WholeResultsRepeatTheirBits) {
  repeat_and_replay(GetParam(), DType::kBF16, true);
}
TEST_P(HopperCalls, MergedResultsRepeatTheirBits) {
  repeat_and_replay(GetParam(), DType::kF16, false);
}

TEST(HopperCalls, ErrorsNameWhatDiffers) {
  Case c = make_case(100, 100, 64, 64);
  c.tiles = {make_placed(0, 100, 0, 100, {})};
  const auto plan = kHopper.prepare(c.problem, lane_device(1));
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  const PlacedTile outside = make_placed(90, 20, 0, 100, {});
  const auto staged = (*plan)->stage({&outside, 1});
  ASSERT_FALSE(staged.ok());
  EXPECT_NE(staged.error().message.find("query rows [90, 110)"), std::string::npos);
  EXPECT_FALSE((*plan)->backward({}, {}).ok());
}

}  // namespace
}  // namespace longspan::testing
