// What only some problems have: side tensors and values are checked before anything moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "longspan/longspan.h"

namespace longspan {
namespace {

using testing::HasSubstr;

constexpr const char* kPlain = "dtype=f32 heads=2/1 dim=4 lengths=5 mask=causal";

/// One rank's tensors of a small problem, with all that any problem may have.
struct Fixture {
  explicit Fixture(const std::string& text, const std::string& backward = "auto") {
    const Device device = cpu_device(1);
    Options options;
    options.backward.strategy = backward;
    engine =
        *Engine::create(options, make_threads_communicators(Topology::blocks(1, 1))[0], device);
    call = *engine->prepare(*parse_problem(text));
    workspace.resize(std::max(call->workspace_bytes(Direction::kForward),
                              call->workspace_bytes(Direction::kBackward)) +
                     kWorkspaceAlignment);
  }

  TensorView rows(int64_t heads, int64_t dim) {
    values.push_back(std::make_unique<std::vector<float>>(5 * heads * dim, 0.25f));
    return packed_view(values.back()->data(), DType::kF32, 5, heads, dim);
  }
  TensorView per_head() {
    values.push_back(std::make_unique<std::vector<float>>(2, 0.5f));
    return packed_view(values.back()->data(), DType::kF32, 1, 2, 1);
  }
  TensorView bias() {
    values.push_back(std::make_unique<std::vector<float>>(50, 0.5f));
    return {values.back()->data(), DType::kF32, 1, 5, 2, 5, 50, 5, 25};
  }
  ForwardOperands forward() {
    return {rows(2, 4), rows(1, 4), rows(1, 4), rows(2, 4), rows(2, 1), 0.5, {}, {}};
  }
  BackwardOperands backward() {
    return {rows(2, 4), rows(1, 4), rows(1, 4), rows(2, 4), rows(2, 1), rows(2, 4), rows(2, 4),
            rows(1, 4), rows(1, 4), 0.5,        {},         {},         {}};
  }
  Workspace scratch() {
    const auto at = reinterpret_cast<uintptr_t>(workspace.data());
    const size_t skip = (kWorkspaceAlignment - at % kWorkspaceAlignment) % kWorkspaceAlignment;
    return {workspace.data() + skip, workspace.size() - skip};
  }
  template <class Operands>
  std::string refusal(const Operands& operands) {
    const Status status = check_binding(*call, operands, {}, scratch());
    return status.ok() ? "accepted" : status.error().message;
  }
  Status run(const ForwardOperands& operands) {
    Stream stream;
    return engine->forward(*call, operands, {}, scratch(), stream);
  }

  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Call> call;
  std::vector<std::unique_ptr<std::vector<float>>> values;
  std::vector<std::byte> workspace;
};

TEST(Sides, AreThereExactlyWhenTheProblemAsks) {
  Fixture plain(kPlain);
  ForwardOperands x = plain.forward();
  EXPECT_EQ(plain.refusal(x), "accepted");
  x.side.sink = plain.per_head();
  EXPECT_THAT(plain.refusal(x), HasSubstr("sink is given but the problem does not ask for it"));
  x.side = {.slopes = plain.per_head()};
  EXPECT_THAT(plain.refusal(x), HasSubstr("alibi=none"));
  x.side = {.bias = plain.bias()};
  EXPECT_THAT(plain.refusal(x), HasSubstr("bias is given"));
  x.side = {};
  x.max_logit = plain.per_head();
  EXPECT_THAT(plain.refusal(x), HasSubstr("add max_logit=true"));

  Fixture asks(std::string(kPlain) + " sink=learnable bias=1,h alibi=default max_logit=true");
  x = asks.forward();
  EXPECT_THAT(asks.refusal(x), HasSubstr("sink is missing; the problem has sink=learnable"));
  x.side.sink = asks.per_head();
  EXPECT_THAT(asks.refusal(x), HasSubstr("bias is missing"));
  x.side.bias = asks.bias();
  EXPECT_THAT(asks.refusal(x), HasSubstr("max_logit is missing"));
  x.max_logit = asks.per_head();
  EXPECT_EQ(asks.refusal(x), "accepted");
  BackwardOperands y = asks.backward();
  y.side = x.side;
  EXPECT_THAT(asks.refusal(y), HasSubstr("dsink is missing"));
  y.dsink = asks.per_head();
  EXPECT_THAT(asks.refusal(y), HasSubstr("dbias is missing"));
  y.dbias = asks.bias();
  EXPECT_EQ(asks.refusal(y), "accepted");
}

TEST(Sides, ShapesTypesAndOverlap) {
  Fixture f(std::string(kPlain) + " sink=learnable bias=1,h max_logit=true");
  ForwardOperands good = f.forward();
  good.side = {.sink = f.per_head(), .bias = f.bias()};
  good.max_logit = f.per_head();
  ASSERT_EQ(f.refusal(good), "accepted");
  ForwardOperands x = good;
  x.side.sink.heads = 1;
  EXPECT_THAT(f.refusal(x), HasSubstr("sink is [1, 1, 1, 1]"));
  x = good;
  x.side.sink.dtype = DType::kF64;
  EXPECT_THAT(f.refusal(x), HasSubstr("sink is f64; must be f32"));
  x = good;
  x.side.bias.seq = 4;
  EXPECT_THAT(f.refusal(x), HasSubstr("the problem needs [1, 5, 2, 5]"));
  x = good;
  x.max_logit.data = x.o.data;
  EXPECT_THAT(f.refusal(x), HasSubstr("overlap"));
  x = good;
  x.max_logit.data = x.side.sink.data;
  EXPECT_THAT(f.refusal(x), HasSubstr("sink and max_logit overlap"));
}

TEST(Sides, ValuesAreInRange) {
  Fixture plain(kPlain);
  ForwardOperands x = plain.forward();
  x.side.softcap = 5.0;
  EXPECT_THAT(plain.refusal(x), HasSubstr("softcap 5"));
  x.side = {.dropout = Dropout{.probability = 0.5}};
  EXPECT_THAT(plain.refusal(x), HasSubstr("add dropout=P"));
  x.side.dropout = Dropout{.probability = 0, .seed = 4};
  EXPECT_EQ(plain.refusal(x), "accepted");

  Fixture f(std::string(kPlain) + " softcap=5 dropout=0.1");
  x = f.forward();
  EXPECT_EQ(f.refusal(x), "accepted");
  x.side.softcap = 0.0;
  EXPECT_THAT(f.refusal(x), HasSubstr("must be positive where the problem has a softcap"));
  x.side.softcap = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(f.refusal(x), HasSubstr("softcap nan"));
  x.side = {.dropout = Dropout{.probability = 1}};
  EXPECT_THAT(f.refusal(x), HasSubstr("must be in [0, 1)"));
  constexpr uint32_t kKey[2] = {1, 2};
  x.side = {.dropout = Dropout{.probability = 0.1, .device_key = kKey}};
  EXPECT_THAT(f.run(x).error().message, HasSubstr("give seed and offset"));
}

TEST(Sides, PageTablesStayInsideTheirPool) {
  Fixture f(std::string(kPlain) + " page=2", "none");
  std::vector<float> pool(4 * 2 * 4, 0.25f);
  const std::vector<int32_t> table = {3, 0, 1};
  ForwardOperands x = f.forward();
  EXPECT_THAT(f.refusal(x), HasSubstr("this rank's 6 rows need [3, 2, 1, 4]"));
  const TensorView paged{pool.data(), DType::kF32, 3, 2, 1, 4, 8, 4, 4, table.data(), 4};
  x.k = paged;
  x.v = paged;
  EXPECT_EQ(f.refusal(x), "accepted");
  x.k.pages = nullptr;
  EXPECT_THAT(f.refusal(x), HasSubstr("k has no page table"));
  const std::vector<int32_t> wild = {3, 4, 1};
  x.k.pages = wild.data();
  EXPECT_THAT(f.refusal(x), HasSubstr("entry 1 of the page table is 4; the pool has 4 pages"));
  x.k = paged;
  x.q.pages = table.data();
  EXPECT_THAT(f.refusal(x), HasSubstr("only k and v may"));

  Fixture plain(kPlain);
  x = plain.forward();
  x.k.pages = table.data();
  EXPECT_THAT(plain.refusal(x), HasSubstr("the problem has no page=N"));
}

TEST(Sides, ForwardAloneHasNoBackward) {
  Fixture f(kPlain, "none");
  EXPECT_TRUE(f.call->explanation().forward_only);
  EXPECT_TRUE(f.call->saved_layout().empty());
  EXPECT_EQ(f.call->workspace_bytes(Direction::kBackward), 0u);
  EXPECT_TRUE(f.run(f.forward()).ok());
  EXPECT_THAT(f.refusal(f.backward()), HasSubstr("prepared for forward alone"));
}

TEST(Sides, ForwardWithAndWithoutBackwardGivesTheSameBits) {
  Fixture both(kPlain);
  Fixture alone(kPlain, "none");
  ForwardOperands x = both.forward();
  ForwardOperands y = alone.forward();
  ASSERT_TRUE(both.run(x).ok());
  ASSERT_TRUE(alone.run(y).ok());
  EXPECT_EQ(std::memcmp(x.o.data, y.o.data, 5 * 2 * 4 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(x.lse.data, y.lse.data, 5 * 2 * sizeof(float)), 0);
}

TEST(Modifications, NeedADerivativeForBackward) {
  const Device device = cpu_device(1);
  Problem problem = *parse_problem(kPlain);
  auto functions = std::make_shared<Modification>();
  functions->score = [](double score, const ScoreIndex&) { return 2 * score; };
  problem.modification = {functions};
  Options options;
  auto engine =
      *Engine::create(options, make_threads_communicators(Topology::blocks(1, 1))[0], device);
  const auto refused = engine->prepare(problem);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("Modification::derivative"));
}

}  // namespace
}  // namespace longspan
