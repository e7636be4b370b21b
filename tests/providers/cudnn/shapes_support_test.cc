// What cuDNN itself says to the graphs of random cases, in the strides of their tensors: an offer
// is a promise.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "providers/cudnn/budget.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/operands.h"
#include "providers/cudnn/recorded_device.h"
#include "providers/cudnn/rules.h"
#include "providers/support.h"

namespace longspan::cudnn {
namespace {

using testing::Case;
using testing::Tensor;

/// The case's tensors, as they would lie in device memory.
class Views {
 public:
  explicit Views(const Case& c) : case_(c) {}

  TensorView queries(DType dtype, int64_t dim) const {
    return view({.dtype = dtype, .rows = case_.problem.capacity_q, .heads = case_.problem.heads_q},
                dim);
  }
  TensorView keys(DType dtype, int64_t dim) const {
    return view({.dtype = dtype, .rows = case_.problem.capacity_k, .heads = case_.problem.heads_kv},
                dim);
  }

 private:
  TensorView view(Tensor::Shape shape, int64_t dim) const {
    shape.dim = dim;
    shape.memory = case_.memory;
    shape.batch = case_.batch;
    shape.gap = case_.gap;
    TensorView result = Tensor(shape).view();
    constexpr uintptr_t kAligned = 256;  // as the allocator's; nothing is read
    result.data = reinterpret_cast<void*>(kAligned);
    return result;
  }

  const Case& case_;
};

GraphKey key_of(const Case& c, const TileProblem& p, const Group& group, bool with_o) {
  const Views views(c);
  const DType result = p.features.whole ? p.dtype : DType::kF32;
  const TensorView q = views.queries(p.dtype, p.dim_qk);
  const TensorView k = views.keys(p.dtype, p.dim_qk);
  const TensorView v = views.keys(p.dtype, p.dim_v);
  const TensorView o = views.queries(p.dtype, p.dim_v);
  const TensorView lse = views.queries(DType::kF32, 1);
  if (p.direction == Direction::kForward) {
    const ForwardTiles tiles{
        .q = q, .k = k, .v = v, .o = views.queries(result, p.dim_v), .lse = lse, .scale = c.scale};
    return graph_key(p, group, operands_of(p, group, tiles), 0);
  }
  const BackwardTiles tiles{.q = q,
                            .k = k,
                            .v = v,
                            .dout = o,
                            .lse = lse,
                            .delta = lse,
                            .o = with_o ? o : TensorView(),
                            .dq = views.queries(result, p.dim_qk),
                            .dk = views.keys(result, p.dim_qk),
                            .dv = views.keys(result, p.dim_v),
                            .scale = c.scale};
  return graph_key(p, group, operands_of(p, group, tiles), 0);
}

class CudnnRandomShapes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { load_without_device(); }

  /// Asks for everything that the case's tiles need where the provider offers its problem.
  void check_case(const Case& c) {
    const Device device{.name = "cuda", .ordinal = 0, .capability = 90};
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      TileProblem p = c.problem;
      p.direction = direction;
      if (refusal(p, device)) continue;
      for (const Group& group : make_groups(p, c.tiles)) {
        const CudnnBytes bytes = cudnn_bytes(p, group);
        EXPECT_LE(bytes.total(), cudnn_budget(p)) << c.text();
        for (const bool with_o : {false, true}) {
          if (!with_o && direction == Direction::kForward) continue;
          const GraphKey key = key_of(c, p, group, with_o);
          const auto support = check_support(key, properties_, bytes.engine);
          ASSERT_TRUE(support.ok()) << support.error().text();
          EXPECT_TRUE(support->accepted)
              << text(key) << " of " << c.text() << ": " << support->message;
          ++asked_;
        }
      }
    }
  }

  const std::string properties_ = recorded_or_described();
  int64_t asked_ = 0;
};

/// Those that providers are compared on (AgainstReference, with the same seed).
TEST_F(CudnnRandomShapes, OfTheProviderTests) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 250; ++i) check_case(testing::random_case(random));
  EXPECT_GT(asked_, 100);
}

/// Others of the same kinds that are all offered: carried, whole, deterministic.
TEST_F(CudnnRandomShapes, OfEveryFeature) {
  constexpr int64_t kDims[] = {8, 24, 64, 72, 128, 192, 256};
  std::mt19937_64 random(12);
  for (int i = 0; i < 90; ++i) {
    Case c = testing::random_case(random);
    c.problem.dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
    c.problem.dim_qk = c.problem.dim_v = kDims[i % 7];
    c.problem.features.whole = i % 3 == 1;
    c.problem.features.deterministic = i % 3 == 2;
    c.problem.features.bias = static_cast<Bias>(i % 6);
    if (c.problem.features.whole) c.tiles.resize(1);  // no row lies in two
    check_case(c);
  }
  EXPECT_GT(asked_, 100);
}

}  // namespace
}  // namespace longspan::cudnn
