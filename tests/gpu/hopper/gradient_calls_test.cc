// Backward calls that are repeated, captured and replayed: the same bits over poisoned results.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/device_tensors.h"
#include "gpu/graph.h"
#include "gpu/hopper/gradients.h"
#include "providers/hopper/backward/plan.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr int kRepeats = 100;

/// One prepared call on device copies of a case's tensors, and its results.
class BackwardCall {
 public:
  BackwardCall(const BackwardTiles& call, Gradients& results, double initial)
      : results_(results), call_(call), initial_(initial) {}

  Status prepare(std::unique_ptr<hopper::BackwardPlan> plan, Stream stream) {
    plan_ = std::move(plan);
    LONGSPAN_TRY(staged_, plan_->stage(call_.tiles));
    LONGSPAN_TRY(auto workspace, GuardedMemory::poisoned(plan_->workspace_bytes()));
    workspace_ = std::make_unique<GuardedMemory>(std::move(workspace));
    call_.staged = staged_.get();
    call_.stream = stream;
    return tensors_.move(call_);
  }
  Status enqueue() const {
    return plan_->backward(call_, {workspace_->data(), plan_->workspace_bytes()});
  }
  /// Uploads what the results were at first, runs `body` and returns what the results are.
  template <class Body>
  std::vector<double> after(Body&& body) {
    for (Tensor* t : {&results_.dq, &results_.dk, &results_.dv}) t->fill(initial_);
    EXPECT_TRUE(tensors_.upload().ok());
    body();
    const Status copied = tensors_.copy_back();
    EXPECT_TRUE(copied.ok()) << copied.error().text();
    std::vector<double> values;
    for (const Tensor* t : {&results_.dq, &results_.dk, &results_.dv}) {
      const std::vector<double> more = t->values();
      values.insert(values.end(), more.begin(), more.end());
    }
    return values;
  }

 private:
  Gradients& results_;
  BackwardTiles call_;
  double initial_;
  DeviceTensors tensors_;
  std::unique_ptr<hopper::BackwardPlan> plan_;
  std::shared_ptr<const Staged> staged_;
  std::unique_ptr<GuardedMemory> workspace_;
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

using Dims = std::pair<int64_t, int64_t>;  // of queries and keys, and of values

struct Repeats {
  DType dtype = DType::kBF16;
  bool whole = true;
  int64_t units = 4096;  // of a chunk, at most
  bool terms = false;
};

void repeat_and_replay(Dims dims, const Repeats& way) {
  const auto [dim, dim_v] = dims;
  Case c = make_case(1500, 1400, dim, dim_v, way.dtype);
  c.problem.direction = Direction::kBackward;
  c.problem.score_bytes = way.units * 2 * hopper::kUnitBytes;
  c.tiles = {make_placed(0, 700, 0, 700, {-kUnbounded, 0}), make_placed(710, 330, 690, 300, {}),
             make_placed(1100, 400, 1000, 400, {-300, 20})};
  Tensor slopes({.dtype = DType::kF32, .rows = 1, .heads = c.problem.heads_q});
  slopes.fill(0.02);
  if (way.terms) {
    Features& features = c.problem.features;
    features.softcap = features.alibi = features.dropout = true;
    c.terms = {.softcap = 2.5, .slopes = slopes.view(), .dropout = {0.3, 7, 5}};
  }
  const Inputs in = make_inputs(c, static_cast<uint64_t>(dim));
  const ExactBackward exact = exact_backward(c, in);
  c.problem.features.whole = way.whole;
  Gradients results = zero_gradients(c, way.whole ? way.dtype : DType::kF32);
  const Device device = lane_device(1);
  const cuda::DeviceScope scope(device.ordinal);
  const auto stream = cuda::OwnedStream::make();
  ASSERT_TRUE(stream.ok());
  BackwardCall call(call_of(c, in, exact, results, way.whole), results, way.whole ? NAN : 0.5);
  const Status prepared =
      call.prepare(std::make_unique<hopper::BackwardPlan>(c.problem, device), stream->get());
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

class HopperBackwardCalls : public ::testing::TestWithParam<Dims> {};
INSTANTIATE_TEST_SUITE_P(Dims, HopperBackwardCalls,
                         ::testing::Values(Dims{192, 128}, Dims{192, 192}, Dims{256, 256},
                                           Dims{512, 512}));

TEST_P(HopperBackwardCalls, WholeGradientsRepeatTheirBits) { repeat_and_replay(GetParam(), {}); }
TEST_P(HopperBackwardCalls, WholeGradientsOfSeveralChunksRepeatTheirBits) {
  repeat_and_replay(GetParam(), {.dtype = DType::kF16, .units = 8});
}
TEST_P(HopperBackwardCalls, AddedGradientsRepeatTheirBits) {
  repeat_and_replay(GetParam(), {.dtype = DType::kF16, .whole = false, .units = 20});
}
TEST_P(HopperBackwardCalls, GradientsWithTermsRepeatTheirBits) {
  repeat_and_replay(GetParam(), {.units = 20, .terms = true});
}

TEST(HopperBackwardCalls, ErrorsNameWhatDiffers) {
  Case c = make_case(100, 100, 192, 192);
  c.problem.direction = Direction::kBackward;
  c.tiles = {make_placed(0, 100, 0, 100, {})};
  const auto plan = kHopper.prepare(c.problem, lane_device(1));
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  const PlacedTile outside = make_placed(90, 20, 0, 100, {});
  const auto staged = (*plan)->stage({&outside, 1});
  ASSERT_FALSE(staged.ok());
  EXPECT_NE(staged.error().message.find("query rows [90, 110)"), std::string::npos);
  EXPECT_FALSE((*plan)->forward({}, {}).ok());
}

}  // namespace
}  // namespace longspan::testing
