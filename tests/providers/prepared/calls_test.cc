// Calls of opened kernels: attention that the double computes, what it is given, what it raises.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "base/half.h"
#include "double_store.h"
#include "providers/prepared/scratch.h"

namespace longspan::prepared::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kQueries = 11, kKeys = 13, kHeads = 4, kHeadsKv = 2, kDim = 16;

/// Rows of bf16, [batch, rows, heads, dim].
struct Rows16 {
  std::vector<uint16_t> data;
  int64_t rows, heads;

  Rows16(int64_t rows_, int64_t heads_, int seed)
      : data(static_cast<size_t>(kBatch * rows_ * heads_ * kDim)), rows(rows_), heads(heads_) {
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = float_to_bf16(static_cast<float>(std::sin(0.7 * static_cast<double>(i) + seed)));
    }
  }
  Operand operand() {
    return {.data = data.data(),
            .element = Element::kBF16,
            .rank = 4,
            .shape = {kBatch, rows, heads, kDim},
            .strides = {rows * heads * kDim, heads * kDim, kDim, 1}};
  }
  double at(int64_t b, int64_t i, int64_t h, int64_t e) const {
    return bf16_to_float(data[static_cast<size_t>(((b * rows + i) * heads + h) * kDim + e)]);
  }
};

/// Everything that forward and backward are given.
struct Scene {
  Rows16 q{kQueries, kHeads, 1}, k{kKeys, kHeadsKv, 2}, v{kKeys, kHeadsKv, 3};
  Rows16 o{kQueries, kHeads, 4}, dout{kQueries, kHeads, 5};
  Rows16 dq{kQueries, kHeads, 6}, dk{kKeys, kHeadsKv, 7}, dv{kKeys, kHeadsKv, 8};
  std::vector<float> lse = std::vector<float>(kBatch * kHeads * kQueries, NAN);
  std::vector<std::vector<float>> buffers;

  Values values() {
    Values x;
    x.scale = 0.3;
    x[Name::kQ] = q.operand();
    x[Name::kK] = k.operand();
    x[Name::kV] = v.operand();
    x[Name::kO] = o.operand();
    x[Name::kDout] = dout.operand();
    x[Name::kDq] = dq.operand();
    x[Name::kDk] = dk.operand();
    x[Name::kDv] = dv.operand();
    x[Name::kLse] = {.data = lse.data(),
                     .element = Element::kF32,
                     .rank = 3,
                     .shape = {kBatch, kHeads, kQueries},
                     .strides = {kHeads * kQueries, kQueries, 1}};
    return x;
  }
  /// As a plan does: memory with rubbish, of which the kernel's own part is cleared.
  void add_buffers(const Manifest& m, Values& x) {
    const TileProblem p{.direction = Direction::kBackward,
                        .dtype = DType::kBF16,
                        .heads_q = kHeads,
                        .heads_kv = kHeadsKv,
                        .group = 2,
                        .dim_qk = kDim,
                        .dim_v = kDim};
    const rows::Entry entry{.nq = kQueries, .nk = kKeys};
    const Launch launch{.entries = {static_cast<size_t>(kBatch), entry}};
    for (const Buffer& b : m.buffers) {
      Operand operand = buffer_operand(b, m, p, launch);
      buffers.emplace_back(bytes_of(operand) / 4, b.cleared ? 0.0f : NAN);
      operand.data = buffers.back().data();
      x[b.name] = operand;
    }
  }
  /// Probability of a pair, and of the whole row's scores.
  double p(int64_t b, int64_t h, int64_t i, int64_t j, bool causal) const {
    double sum = 0, own = 0;
    for (int64_t key = 0; key < kKeys; ++key) {
      if (causal && key > i + kKeys - kQueries) break;
      double s = 0;
      for (int64_t e = 0; e < kDim; ++e) s += q.at(b, i, h, e) * k.at(b, key, h / 2, e);
      sum += std::exp(0.3 * s);
      if (key == j) own = std::exp(0.3 * s);
    }
    return own / sum;
  }
};

std::shared_ptr<const Kernel> opened(const json& manifest) {
  DoubleStore store;
  store.add(manifest);
  const auto kernel = store.open();
  if (!kernel.ok()) throw std::runtime_error(kernel.error().text());
  return *kernel;
}

void expect_forward(Scene& scene, bool causal) {
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t i = 0; i < kQueries; ++i) {
      double want = 0;
      for (int64_t j = 0; j < kKeys; ++j) {
        want += scene.p(1, h, i, j, causal) * scene.v.at(1, j, h / 2, 5);
      }
      EXPECT_NEAR(scene.o.at(1, i, h, 5), want, 0.01) << h << " " << i;
    }
  }
}

TEST(Calls, ForwardOfAllKeys) {
  Scene scene;
  const auto kernel = opened(forward_manifest("full", "full", "full", kForwardFull));
  ASSERT_TRUE(kernel->run(scene.values()).ok());
  expect_forward(scene, false);
}

TEST(Calls, CausalForward) {
  Scene scene;
  const auto kernel = opened(forward_manifest("causal", "causal", "causal", kForwardFull));
  ASSERT_TRUE(kernel->run(scene.values()).ok());
  expect_forward(scene, true);
}

TEST(Calls, WindowsOfRunTimeWidths) {
  Scene scene;
  const auto kernel = opened(forward_manifest("window", "window", "window", kForwardWindow));
  Values values = scene.values();
  values.left = kKeys;
  values.right = 0;
  ASSERT_TRUE(kernel->run(values).ok());
  expect_forward(scene, true);
  values.right = kKeys;
  ASSERT_TRUE(kernel->run(values).ok());
  expect_forward(scene, false);
}

/// The chain clears what it adds to, whatever lay there: a second run gives the same.
TEST(Calls, BackwardIsAChain) {
  Scene scene;
  Values values = scene.values();
  ASSERT_TRUE(
      opened(forward_manifest("causal", "causal", "causal", kForwardFull))->run(values).ok());
  const auto kernel = opened(backward_manifest("backward", "causal"));
  std::vector<uint16_t> first;
  for (int run = 0; run < 2; ++run) {
    scene.buffers.clear();
    scene.buffers.reserve(8);
    scene.add_buffers(kernel->manifest(), values);
    const Status status = kernel->run(values);
    ASSERT_TRUE(status.ok()) << status.error().text();
    for (int64_t j = 0; j < kKeys; ++j) {
      double want = 0;
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t i = 0; i < kQueries; ++i) {
          if (j > i + kKeys - kQueries) continue;
          want += scene.p(1, h, i, j, true) * scene.dout.at(1, i, h, 3);
        }
      }
      EXPECT_NEAR(scene.dv.at(1, j, 0, 3), want, 0.02) << j;
    }
    if (run == 0) first = scene.dq.data;
    EXPECT_EQ(scene.dq.data, first);
  }
}

TEST(Calls, GradientsAreThoseOfDifferences) {
  Scene scene;
  Values values = scene.values();
  const auto forward = opened(forward_manifest("causal", "causal", "causal", kForwardFull));
  ASSERT_TRUE(forward->run(values).ok());
  const auto kernel = opened(backward_manifest("backward", "causal"));
  scene.buffers.reserve(8);
  scene.add_buffers(kernel->manifest(), values);
  ASSERT_TRUE(kernel->run(values).ok());
  // The loss sum(o * dout) of one query row, for a step of one element of q.
  const auto loss = [&](double step) {
    double sum = 0;
    std::vector<double> e(kKeys);
    for (int64_t j = 0; j <= 6 + kKeys - kQueries; ++j) {
      double s = step * scene.k.at(1, j, 1, 4);
      for (int64_t x = 0; x < kDim; ++x) s += scene.q.at(1, 6, 2, x) * scene.k.at(1, j, 1, x);
      sum += e[static_cast<size_t>(j)] = std::exp(0.3 * s);
    }
    double value = 0;
    for (int64_t j = 0; j < kKeys; ++j) {
      for (int64_t x = 0; x < kDim; ++x) {
        value +=
            e[static_cast<size_t>(j)] / sum * scene.v.at(1, j, 1, x) * scene.dout.at(1, 6, 2, x);
      }
    }
    return value;
  };
  const double want = (loss(1e-4) - loss(-1e-4)) / 2e-4;
  EXPECT_NEAR(scene.dq.at(1, 6, 2, 4), want, 0.02 * std::abs(want) + 0.01);
}

TEST(Calls, WhatAnEntryRaisesIsTheError) {
  Scene scene;
  const auto kernel = opened(forward_manifest("fails", "fails", "full", kForwardFull));
  const Status status = kernel->run(scene.values());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kDriver);
  EXPECT_EQ(status.error().message, "main of fails: RuntimeError: the device is on fire");
}

TEST(Calls, MissingAndWrongOperandsNeverReachAnEntry) {
  Scene scene;
  const auto kernel = opened(forward_manifest("records", "records", "full", kForwardFull));
  const int64_t before = record().calls;
  Values values = scene.values();
  values[Name::kLse].data = nullptr;
  EXPECT_THAT(kernel->run(values).error().message, HasSubstr("mLSE needs lse"));
  values = scene.values();
  values[Name::kV].rank = 3;
  EXPECT_THAT(kernel->run(values).error().message,
              HasSubstr("slot mV takes bfloat16 of rank 4, v is bfloat16 of rank 3"));
  values = scene.values();
  values[Name::kQ].element = Element::kF16;
  EXPECT_THAT(kernel->run(values).error().message, HasSubstr("q is float16 of rank 4"));
  EXPECT_EQ(record().calls, before);
}

TEST(Calls, TheStreamIsThatOfTheCallOnEveryThread) {
  Scene scene;
  const auto kernel = opened(forward_manifest("records", "records", "full", kForwardFull));
  int streams[2];
  Values values = scene.values();
  values.stream.handle = &streams[0];
  ASSERT_TRUE(kernel->run(values).ok());
  EXPECT_EQ(record().stream, &streams[0]);
  std::thread([&] {
    Values other = scene.values();
    other.stream.handle = &streams[1];
    ASSERT_TRUE(kernel->run(other).ok());
    EXPECT_EQ(record().stream, &streams[1]);
  }).join();
  values.stream.handle = nullptr;
  ASSERT_TRUE(kernel->run(values).ok());
  EXPECT_EQ(record().stream, nullptr);
}

TEST(Calls, ThereIsNoPythonInTheProcess) {
  Scene scene;
  ASSERT_TRUE(
      opened(forward_manifest("full", "full", "full", kForwardFull))->run(scene.values()).ok());
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "Py_IsInitialized"), nullptr);
}

}  // namespace
}  // namespace longspan::prepared::testing
