// A captured tile call: replays give the bits of direct calls, whatever the inputs hold by then.
#include "gpu/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/device_tensors.h"
#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

constexpr DType kWide = DType::kF32;

const Provider& provider() { return *fixed_order_providers().front(); }

/// Two tiles, the second of which adds to what the first wrote.
Scene two_tiles() {
  Case c = one_tile(150, 170, {-kUnbounded, 30}, DType::kBF16);
  c.problem.capacity_q = 300;
  c.gap = 3;
  c.tiles.push_back(make_placed(100, 200, 20, 150, {}));
  return make_scene(
      std::move(c),
      {.softcap = true, .alibi = true, .bias = Bias::k1H, .dropout = true, .max_logit = true}, 3);
}

/// What calls start from.
SceneOutcome empty_results(const Scene& scene) {
  SceneOutcome r{empty_carry(scene.c, kWide), zero_gradients(scene.c, kWide),
                 Tensor({.dtype = kWide, .rows = 1, .heads = scene.slopes.shape().heads}),
                 make_bias(scene, kWide)};
  r.max_logit.fill(-INFINITY);
  r.dbias.fill(0);
  return r;
}

/// What backward takes from forward.
struct Statistics {
  Tensor lse, delta;
};

/// Both directions by calls of their own.
std::pair<SceneOutcome, Statistics> direct(Scene& scene) {
  SceneOutcome r = empty_results(scene);
  scene.c.max_logit = r.max_logit.view();
  scene.c.dbias = r.dbias.view();
  forward(provider(), lane_device(1), scene.c, scene.in, scene.c.tiles, r.carry);
  Statistics s{r.carry.lse.copy(r.carry.lse.shape()),
               make_delta(scene.c, scene.in, r.carry.o, kWide)};
  backward(provider(), lane_device(1), scene.c, scene.in, scene.c.tiles, s.lse, s.delta,
           r.gradients);
  return {std::move(r), std::move(s)};
}

/// Puts the values of `from` where views of `to` look.
void assign(Tensor& to, const Tensor& from) {
  for (int64_t row = 0; row < to.shape().rows; ++row) {
    for (int64_t head = 0; head < to.shape().heads; ++head) {
      for (int64_t i = 0; i < to.shape().dim; ++i) to.set(row, head, i, from.get(row, head, i));
    }
  }
}

void assign(SceneOutcome& to, const SceneOutcome& from) {
  assign(to.carry.o, from.carry.o);
  assign(to.carry.lse, from.carry.lse);
  assign(to.gradients.dq, from.gradients.dq);
  assign(to.gradients.dk, from.gradients.dk);
  assign(to.gradients.dv, from.gradients.dv);
  assign(to.max_logit, from.max_logit);
  assign(to.dbias, from.dbias);
}

void expect_equal(const SceneOutcome& a, const SceneOutcome& b) {
  EXPECT_EQ(a.carry.o.values(), b.carry.o.values());
  EXPECT_EQ(a.carry.lse.values(), b.carry.lse.values());
  EXPECT_EQ(a.gradients.dq.values(), b.gradients.dq.values());
  EXPECT_EQ(a.gradients.dk.values(), b.gradients.dk.values());
  EXPECT_EQ(a.gradients.dv.values(), b.gradients.dv.values());
  EXPECT_EQ(a.max_logit.values(), b.max_logit.values());
  EXPECT_EQ(a.dbias.values(), b.dbias.values());
}

/// Both calls on device copies of a scene, of `results` and of `statistics`.
class DeviceCalls {
 public:
  DeviceCalls(const Scene& scene, const SceneOutcome& results, const Statistics& statistics,
              Stream stream)
      : tiles_(scene.c.tiles),
        forward_{.q = scene.in.q.view(),
                 .k = scene.in.k.view(),
                 .v = scene.in.v.view(),
                 .o = results.carry.o.view(),
                 .lse = results.carry.lse.view(),
                 .tiles = tiles_,
                 .scale = scene.c.scale,
                 .terms = scene.c.terms,
                 .max_logit = results.max_logit.view(),
                 .stream = stream},
        backward_{.q = scene.in.q.view(),
                  .k = scene.in.k.view(),
                  .v = scene.in.v.view(),
                  .dout = scene.in.dout.view(),
                  .lse = statistics.lse.view(),
                  .delta = statistics.delta.view(),
                  .dq = results.gradients.dq.view(),
                  .dk = results.gradients.dk.view(),
                  .dv = results.gradients.dv.view(),
                  .tiles = tiles_,
                  .scale = scene.c.scale,
                  .terms = scene.c.terms,
                  .dbias = results.dbias.view(),
                  .stream = stream} {}

  Status prepare(TileProblem problem) {
    problem.direction = Direction::kForward;
    LONGSPAN_TRY(forward_plan_, provider().prepare(problem, lane_device(1)));
    problem.direction = Direction::kBackward;
    LONGSPAN_TRY(backward_plan_, provider().prepare(problem, lane_device(1)));
    LONGSPAN_TRY(forward_staged_, forward_plan_->stage(tiles_));
    LONGSPAN_TRY(backward_staged_, backward_plan_->stage(tiles_));
    forward_.staged = forward_staged_.get();
    backward_.staged = backward_staged_.get();
    LONGSPAN_CHECK_OK(tensors_.move(forward_));
    return tensors_.move(backward_);
  }
  Status enqueue() const {
    LONGSPAN_CHECK_OK(forward_plan_->forward(forward_, {}));
    return backward_plan_->backward(backward_, {});
  }
  Status upload() { return tensors_.upload(); }
  Status copy_back() { return tensors_.copy_back(); }

 private:
  std::vector<PlacedTile> tiles_;
  ForwardTiles forward_;
  BackwardTiles backward_;
  DeviceTensors tensors_;
  std::shared_ptr<const Plan> forward_plan_, backward_plan_;
  std::shared_ptr<const Staged> forward_staged_, backward_staged_;
};

TEST(Graph, ReplaysTakeWhatTheInputsHoldByThen) {
  Scene scene = two_tiles();
  auto [first, statistics] = direct(scene);
  SceneOutcome results = empty_results(scene);
  const auto stream = cuda::OwnedStream::make();
  ASSERT_TRUE(stream.ok()) << stream.error().text();
  DeviceCalls calls(scene, results, statistics, stream->get());
  Status status = calls.prepare(scene.c.problem);
  ASSERT_TRUE(status.ok()) << status.error().text();
  const Graph graph(stream->get(), [&] { return calls.enqueue(); });
  std::mt19937_64 random(8);
  std::vector<double> last;
  for (int round = 0; round < 3; ++round) {
    auto [expected, given] = direct(scene);
    assign(results, empty_results(scene));
    assign(statistics.lse, given.lse);
    assign(statistics.delta, given.delta);
    ASSERT_TRUE(calls.upload().ok());
    graph.replay();
    status = calls.copy_back();
    ASSERT_TRUE(status.ok()) << status.error().text();
    expect_equal(results, expected);
    EXPECT_NE(results.carry.o.values(), last);
    last = results.carry.o.values();
    for (Tensor* input : {&scene.in.q, &scene.in.k, &scene.in.v, &scene.in.dout, &scene.bias}) {
      input->fill_normal(random);
    }
  }
}

}  // namespace
}  // namespace longspan::testing
