// cudnn with a bias: every shape of it against its definition, and its gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gpu/cudnn/against_host.h"
#include "gpu/cudnn/calls.h"
#include "gpu/graph.h"
#include "providers/cudnn/cudnn.h"
#include "providers/cudnn/heads.h"
#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

constexpr Bias kKinds[] = {Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S};
constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Carried, in two calls.
void check(Scene scene) {
  ASSERT_TRUE(offered(kCudnn, lane_device(1), scene.c.problem)) << scene.text();
  check_scene(kCudnn, scene, lane_device(1));
}

TEST(CudnnBias, EveryShapeUnderEveryBand) {
  uint64_t seed = 400;
  for (const Bias kind : kKinds) {
    for (const Band& band : {kFull, kCausal, Band{-40, 0}, Band{-40, 30}, Band{5, kUnbounded}}) {
      Case c = make_case(150, 190, 64, 64, seed % 2 == 0 ? DType::kBF16 : DType::kF16);
      c.tiles = {make_placed(0, 150, 0, 190, band)};
      check(make_scene(std::move(c), {.bias = kind}, ++seed));
    }
  }
}

TEST(CudnnBias, TokensWithoutStrides) {
  for (const Bias kind : kKinds) {
    for (const int64_t keys : {190, 192, 64}) {
      Case c = make_case(128, keys, 128, 128);
      c.tiles = {make_placed(0, 128, 0, keys, kCausal)};
      check(add_terms(std::move(c), {.bias = kind}, 21));
    }
  }
}

/// One row against one key, against many, and many against one among others.
TEST(CudnnBias, TilesOfOtherShapes) {
  for (const Bias kind : kKinds) {
    Case c = make_case(300, 420, 72, 72);
    int64_t q = 2;
    int64_t k = 5;
    for (const auto& [nq, nk] :
         {std::pair{70, 70}, {1, 1}, {0, 40}, {1, 90}, {60, 1}, {5, 0}, {100, 64}, {33, 95}}) {
      c.tiles.push_back(make_placed(q, nq, k, nk, kFull));
      q += nq + 3;
      k += nk + 2;
    }
    check(make_scene(std::move(c), {.bias = kind}, 31));
  }
}

TEST(CudnnBias, ScalesAndStrides) {
  for (const double scale : {0.11, 0.0, -0.11}) {
    for (const int64_t gap : {0, 1, 8}) {
      Case c = make_case(100, 130, 64, 64);
      c.gap = gap;
      c.memory = gap == 8 ? Memory::kHeadMajor : Memory::kTokenMajor;
      c.scale = scale;
      c.tiles = {make_placed(0, 60, 0, 130, kCausal), make_placed(60, 40, 0, 130, kFull)};
      check(make_scene(std::move(c), {.bias = Bias::kBH}, 41));
    }
  }
}

TEST(CudnnBias, MinusInfinityHides) {
  Case c = make_case(90, 110, 64, 64);
  c.tiles = {make_placed(0, 90, 0, 110, kFull)};
  Scene scene = add_terms(std::move(c), {.bias = Bias::k1H}, 51);
  Tensor& bias = scene.bias;
  for (int64_t q = 0; q < bias.shape().rows; ++q) {
    for (int64_t head = 0; head < bias.shape().heads; ++head) {
      for (int64_t k = 0; k < bias.shape().dim; ++k) {
        if ((q + k) % 3 == 0 || q % 7 == 4) bias.set(q, head, k, -kInfinity);
      }
    }
  }
  check(std::move(scene));
}

/// Elements of hidden pairs are not read.
TEST(CudnnBias, HiddenElementsMayBeNaN) {
  Case c = make_case(90, 110, 64, 64);
  c.tiles = {make_placed(0, 90, 0, 110, kCausal)};
  Scene scene = add_terms(std::move(c), {.bias = Bias::k11}, 61);
  const Tile& tile = scene.c.tiles[0].tile;
  for (int64_t i = 0; i < tile.q.size(); ++i) {
    for (int64_t j = 0; j < tile.k.size(); ++j) {
      if (!tile.band.sees(i, j)) scene.bias.set(tile.q.at(i), 0, tile.k.at(j), NAN);
    }
  }
  check(std::move(scene));
}

/// A capacity whose scores do not fit at once: heads are computed one after the other.
TEST(CudnnBias, HeadsInSlices) {
  for (const Bias kind : {Bias::k1H, Bias::k11, Bias::k111S}) {
    Case c = make_case(16384, 16384, 8, 8);
    c.problem.heads_q = 8;
    c.problem.heads_kv = 4;
    c.tiles = {make_placed(100, 70, 40, 90, kCausal)};
    Scene scene = make_scene(std::move(c), {.bias = kind}, 71);
    TileProblem backward = scene.c.problem;
    backward.direction = Direction::kBackward;
    ASSERT_LT(cudnn::head_slice(backward).heads_q, 8);
    check(std::move(scene));
  }
}

/// A bias of every head, its gradient in float64 and float32.
struct Biased {
  Biased(Case base, Bias kind, uint64_t seed)
      : scene(add_terms(std::move(base), {.bias = kind}, seed)),
        exact(make_bias(scene, DType::kF64)),
        device(make_bias(scene, DType::kF32)) {
    exact.fill(0);
    device.fill(0);
  }
  Scene scene;
  Tensor exact, device;
};

/// No key is left to the query of each sequence.
void hide_query(Scene& scene, int64_t query) {
  Tensor& bias = scene.bias;
  const int64_t queries = bias.shape().rows / bias.shape().batch;
  for (int64_t row = query; row < bias.shape().rows; row += queries) {
    for (int64_t head = 0; head < bias.shape().heads; ++head) {
      for (int64_t k = 0; k < bias.shape().dim; ++k) bias.set(row, head, k, -kInfinity);
    }
  }
}

TEST(CudnnBias, WholeResults) {
  uint64_t seed = 500;
  for (const Bias kind : kKinds) {
    for (const Band& band : {kFull, kCausal, Band{-30, 20}}) {
      Case base = make_case(200, 264, 64, 64);
      base.tiles = {make_placed(0, 200, 0, 264, band)};
      Biased b(std::move(base), kind, ++seed);
      if (kind != Bias::k111S) hide_query(b.scene, 50);
      Case& c = b.scene.c;
      c.dbias = b.exact.view();
      Compared r = compute_exact(c, b.scene.in);
      c.problem.features.whole = true;
      c.dbias = b.device.view();
      compute_device(c, b.scene.in, r);
      expect_close(c, r);
      EXPECT_LT(relative_rms(b.device.values(), b.exact.values()),
                bars(kCudnn, c.problem.dtype).tensors)
          << name(kind);
    }
  }
}

/// Replays compute with what the bias holds by then, and give the bits of eager calls.
TEST(CudnnBias, CapturedAfterStageAndReplayed) {
  for (const Bias kind : {Bias::k1H, Bias::k111S}) {
    Case base = make_case(200, 264, 80, 80);
    base.tiles = {make_placed(0, 200, 0, 264, kCausal)};
    Biased b(std::move(base), kind, 81);
    Case& c = b.scene.c;
    c.dbias = b.exact.view();
    Compared r = compute_exact(c, b.scene.in);
    c.dbias = b.device.view();
    Outcome results = empty_results(c);
    const auto stream = cuda::OwnedStream::make();
    Calls calls(c, b.scene.in, results, r.lse, r.delta, stream->get());
    const Graph graph(stream->get(), [&] { return calls.enqueue(); });
    std::mt19937_64 random(82);
    for (int round = 0; round < 3; ++round) {
      results.carry.o.fill(0);
      results.carry.lse.fill(-kInfinity);
      for (Tensor* t : {&results.gradients.dq, &results.gradients.dk, &results.gradients.dv}) {
        t->fill(0);
      }
      b.device.fill(0);
      ASSERT_TRUE(calls.upload().ok());
      graph.replay();
      const Status copied = calls.copy_back();
      ASSERT_TRUE(copied.ok()) << copied.error().text();
      const std::vector<double> replayed = b.device.values();
      b.device.fill(0);
      compute_device(c, b.scene.in, r);
      EXPECT_EQ(results.carry.lse.values(), r.device.carry.lse.values());
      EXPECT_EQ(results.gradients.dk.values(), r.device.gradients.dk.values());
      EXPECT_EQ(replayed, b.device.values());
      b.scene.bias.fill_normal(random);
    }
  }
}

}  // namespace
}  // namespace longspan::testing
