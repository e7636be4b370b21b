// Calls whose score terms do not fit what was prepared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

/// All that a call takes apart from pages.
struct Full {
  explicit Full(const Terms& terms)
      : scene(make_scene(one_tile(10, 12, {}), terms, 1)),
        carry(empty_carry(scene.c, DType::kF32)),
        gradients(zero_gradients(scene.c, DType::kF32)),
        largest({.rows = 1, .heads = scene.slopes.shape().heads}),
        dbias(make_bias(scene, DType::kF32)) {}

  ForwardTiles forward() const {
    return {.q = scene.in.q.view(),
            .k = scene.in.k.view(),
            .v = scene.in.v.view(),
            .o = carry.o.view(),
            .lse = carry.lse.view(),
            .tiles = scene.c.tiles,
            .scale = scene.c.scale,
            .terms = scene.c.terms,
            .max_logit = scene.c.problem.features.max_logit ? largest.view() : TensorView{}};
  }
  BackwardTiles backward() const {
    return {.q = scene.in.q.view(),
            .k = scene.in.k.view(),
            .v = scene.in.v.view(),
            .dout = scene.in.dout.view(),
            .lse = carry.lse.view(),
            .delta = carry.lse.view(),
            .dq = gradients.dq.view(),
            .dk = gradients.dk.view(),
            .dv = gradients.dv.view(),
            .tiles = scene.c.tiles,
            .scale = scene.c.scale,
            .terms = scene.c.terms,
            .dbias = scene.c.terms.bias.data != nullptr ? dbias.view() : TensorView{}};
  }

  Scene scene;
  Carry carry;
  Gradients gradients;
  Tensor largest, dbias;
};

constexpr Terms kAll = {.softcap = true,
                        .alibi = true,
                        .bias = Bias::kBH,
                        .dropout = true,
                        .score = true,
                        .visible = true,
                        .max_logit = true};

class TermRefusalsOf : public ::testing::TestWithParam<const Provider*> {
 protected:
  using Change = std::function<void(ForwardTiles&)>;

  void refuses(const Full& full, const char* message, const Change& change) {
    ForwardTiles call = full.forward();
    change(call);
    const Status status = attend_tiles(*GetParam(), cpu_, full.scene.c.problem, call);
    ASSERT_FALSE(status.ok()) << message;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr(message));
  }
  void refuses_back(const Full& full, const char* message,
                    const std::function<void(BackwardTiles&)>& change) {
    BackwardTiles call = full.backward();
    change(call);
    const Status status = attend_tiles(*GetParam(), cpu_, full.scene.c.problem, call);
    ASSERT_FALSE(status.ok()) << message;
    EXPECT_THAT(status.error().message, HasSubstr(message));
  }
  const Device cpu_ = device(1);
};

INSTANTIATE_TEST_SUITE_P(Lane, TermRefusalsOf, ::testing::ValuesIn(lane_providers()), label);

TEST_P(TermRefusalsOf, WhatWasPreparedIsTaken) {
  for (const Terms& terms : {Terms{}, kAll}) {
    const Full full(terms);
    const TileProblem& problem = full.scene.c.problem;
    EXPECT_TRUE(attend_tiles(*GetParam(), cpu_, problem, full.forward()).ok());
    EXPECT_TRUE(attend_tiles(*GetParam(), cpu_, problem, full.backward()).ok());
  }
}

TEST_P(TermRefusalsOf, WhatWasNotPreparedIsRefused) {
  const Full plain({});
  const Full full(kAll);
  refuses(plain, "softcap 30, the plan", [](auto& t) { t.terms.softcap = 30; });
  refuses(plain, "slopes is given", [&](auto& t) { t.terms.slopes = full.scene.slopes.view(); });
  refuses(plain, "bias is given", [&](auto& t) { t.terms.bias = full.scene.bias.view(); });
  refuses(plain, "dropout 0.5, the plan", [](auto& t) { t.terms.dropout.probability = 0.5; });
  refuses(plain, "a modification is given",
          [&](auto& t) { t.terms.modification = full.scene.modification.get(); });
  refuses(plain, "max_logit is given", [&](auto& t) { t.max_logit = full.largest.view(); });
  refuses_back(plain, "dbias is given", [&](auto& t) { t.dbias = full.dbias.view(); });
}

TEST_P(TermRefusalsOf, ValuesOutOfRange) {
  const Full full(kAll);
  refuses(full, "softcap 0 must", [](auto& t) { t.terms.softcap = 0; });
  refuses(full, "softcap -1 must", [](auto& t) { t.terms.softcap = -1; });
  refuses(full, "softcap inf must", [](auto& t) { t.terms.softcap = INFINITY; });
  refuses(full, "softcap nan must", [](auto& t) { t.terms.softcap = NAN; });
  refuses(full, "dropout 1 must", [](auto& t) { t.terms.dropout.probability = 1; });
  refuses(full, "dropout -0.5 must", [](auto& t) { t.terms.dropout.probability = -0.5; });
  refuses(full, "head_begin -1", [](auto& t) { t.terms.head_begin = -1; });
}

TEST_P(TermRefusalsOf, MissingOrMisshapenTensors) {
  const Full full(kAll);
  refuses(full, "slopes has shape [1, 0, 0, 0]", [](auto& t) { t.terms.slopes = {}; });
  refuses(full, "but no data", [](auto& t) { t.terms.slopes.data = nullptr; });
  refuses(full, "slopes is f16", [](auto& t) { t.terms.slopes.dtype = DType::kF16; });
  refuses(full, "slopes has shape", [](auto& t) { t.terms.slopes.heads = t.terms.head_begin + 1; });
  refuses(full, "max_logit has shape", [](auto& t) { t.max_logit.dim = 2; });
  refuses(full, "bias has shape [1, 0, 0, 0]", [](auto& t) { t.terms.bias = {}; });
  refuses(full, "bias is f64", [](auto& t) { t.terms.bias.dtype = DType::kF64; });
  refuses(full, "heads 1, for bias=b,h it must be at least",
          [](auto& t) { t.terms.bias.heads = 1; });
  refuses(full, "of sequence", [](auto& t) { t.terms.bias.batch = 0; });
  refuses(full, "tile 0 has queries", [](auto& t) { t.terms.bias.seq = t.tiles[0].tile.q.at(9); });
  refuses(full, "tile 0 has keys", [](auto& t) { t.terms.bias.dim = 5; });
  const int32_t page = 0;
  refuses(full, "bias is paged", [&](auto& t) { t.terms.bias.pages = &page; });
  refuses(full, "q is paged", [&](auto& t) { t.q.pages = &page; });
  refuses_back(full, "dbias has shape", [](auto& t) { t.dbias.dim += 1; });
  refuses_back(full, "dbias is bf16", [](auto& t) { t.dbias.dtype = DType::kBF16; });
}

TEST_P(TermRefusalsOf, BroadcastExtentsMustBeOne) {
  const auto grown = [&](Bias kind, const char* message, int64_t TensorView::*extent) {
    refuses(Full({.bias = kind}), message, [&](auto& t) { t.terms.bias.*extent = 3; });
  };
  grown(Bias::k11, "batch 3, for bias=1,1", &TensorView::batch);
  grown(Bias::k11, "heads 3, for bias=1,1", &TensorView::heads);
  grown(Bias::kB1, "heads 3, for bias=b,1", &TensorView::heads);
  grown(Bias::k1H, "batch 3, for bias=1,h", &TensorView::batch);
  grown(Bias::k111S, "queries 3, for bias=1,1,1,s", &TensorView::seq);
}

TEST_P(TermRefusalsOf, Modifications) {
  Full full(kAll);
  refuses(full, "no modification", [](auto& t) { t.terms.modification = nullptr; });
  Modification other = *full.scene.modification;
  other.key = "other";
  refuses(full, "key \"other\"", [&](auto& t) { t.terms.modification = &other; });
  full.scene.modification->derivative = nullptr;
  EXPECT_TRUE(attend_tiles(*GetParam(), cpu_, full.scene.c.problem, full.forward()).ok());
  refuses_back(full, "no derivative", [](auto&) {});
}

}  // namespace
}  // namespace longspan::testing
