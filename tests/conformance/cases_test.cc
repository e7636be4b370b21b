// Shapes and values that other systems got wrong, on all strategies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "longspan/schedule.h"
#include "numbers.h"
#include "testkit/conformance.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

void copy_values(const TensorView& from, const TensorView& to) {
  for (int64_t row = 0; row < from.rows(); ++row) {
    for (int64_t head = 0; head < from.heads; ++head) {
      for (int64_t i = 0; i < from.dim; ++i) {
        tool::store(to, row, head, i, tool::load(from, row, head, i));
      }
    }
  }
}

/// Every pair of strategies on 2 and 4 ranks.
void expect_everywhere(const std::string& problem, const std::string& partition,
                       const std::vector<int>& rank_counts = {2, 4}) {
  const Case base{.problem = problem, .partition = partition};
  const tool::Inputs inputs = inputs_of(base);
  const tool::Reference reference = reference_of(inputs);
  for (const int ranks : rank_counts) {
    for (const StrategyPair& pair : all_pairs()) {
      Case c = base;
      c.ranks = ranks;
      c.nodes = ranks % 2 == 0 ? 2 : 1;
      c.forward = pair.forward;
      c.backward = pair.backward;
      expect_right_run(c, inputs, reference);
    }
  }
}

TEST(Cases, SevenTokensPaddedToEight) {
  for (const char* mask : {"none", "causal"}) {
    for (const char* lengths :
         {"lengths=7 padded=8 kv_padded=8", "lengths=4,3 padded=4,4 kv_padded=4,4",
          "lengths=4,3 padded=100,100 kv_padded=100,100", "lengths=7 tokens=200 kv_tokens=200"}) {
      expect_everywhere(
          fmt::format("dtype=f16 heads=1/1 dim=8 {} mask={} layout=thd", lengths, mask), "zigzag");
    }
  }
}

class Repeats : public testing::TestWithParam<StrategyPair> {};

TEST_P(Repeats, TwentyOfAPaddedSequenceAreEqual) {
  for (const uint64_t seed : {16, 17, 18}) {
    const Case c{.problem =
                     "dtype=bf16 heads=8/1 dim=128 lengths=698 padded=704 kv_padded=704 "
                     "mask=causal layout=thd",
                 .ranks = 4,
                 .nodes = 2,
                 .forward = GetParam().forward,
                 .backward = GetParam().backward,
                 .partition = "zigzag",
                 .seed = seed};
    const tool::Inputs inputs = inputs_of(c);
    const auto results = run_case(c, inputs, shared_device(), seed == 16 ? 20 : 2);
    ASSERT_TRUE(results.ok()) << results.error().text();
    EXPECT_EQ(results->unequal_repeats, 0) << text(c);
    expect_right(inputs, *results, reference_of(inputs));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Repeats, testing::ValuesIn(diagonal_pairs()));

TEST(Cases, OneTokenARankAndAnEmptyRank) {
  for (const char* partition : {"contiguous", "zigzag"}) {
    expect_everywhere("dtype=bf16 heads=1/1 dim=4 lengths=4 mask=causal layout=bshd", partition);
    expect_everywhere("dtype=bf16 heads=1/1 dim=4 lengths=4 mask=none layout=bshd", partition);
    expect_everywhere("dtype=bf16 heads=1/1 dim=4 lengths=3 mask=causal layout=bshd", partition,
                      {4});
  }
}

TEST(Cases, SmallBatchesBalancedAndNot) {
  for (const char* lengths : {"8", "16", "8,8", "16,16"}) {
    for (const int heads : {2, 4}) {
      for (const char* partition : {"contiguous", "zigzag", "balanced"}) {
        for (const int dim : {1, 16}) {
          expect_everywhere(fmt::format("dtype=f32 heads={}/{} dim={} lengths={} mask=causal",
                                        heads, heads, dim, lengths),
                            partition);
        }
      }
    }
  }
}

TEST(Cases, FullMaskOnZigzag) {
  for (const int length : {64, 128}) {
    expect_everywhere(fmt::format("dtype=f32 heads=1/1 dim=64 lengths={} mask=none", length),
                      "zigzag", {2});
  }
}

TEST(Cases, RowsOfOneKey) {
  // Their dq is 0 by cancellation, and what is left of it stands beside the few other rows.
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    expect_everywhere(
        fmt::format("dtype={} heads=3/3 dim=96 lengths=2,94 mask=none kv_lengths=226,1", dtype),
        "contiguous");
    expect_everywhere(
        fmt::format("dtype={} heads=2/2 dim=64 lengths=1,1,1,1,1,1,1,1,2 mask=causal", dtype),
        "balanced");
  }
}

TEST(Cases, SharpSoftmax) {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    expect_everywhere(
        fmt::format("dtype={} heads=4/2 dim=64 lengths=96 mask=causal scale=-1", dtype), "zigzag");
  }
}

TEST(Cases, LengthThatNothingDivides) {
  const Case base{.problem = "dtype=f32 heads=8/2 dim=64 lengths=2999 mask=causal",
                  .ranks = 4,
                  .nodes = 2,
                  .partition = "zigzag"};
  const tool::Inputs inputs = inputs_of(base);
  const tool::Reference reference = reference_of(inputs);
  for (const StrategyPair& pair : diagonal_pairs()) {
    Case c = base;
    c.forward = pair.forward;
    c.backward = pair.backward;
    expect_right_run(c, inputs, reference);
  }
}

/// Adds to every logit what the last column makes of it: q[.., last] = factor, k[.., last] as `key`
/// says for each row. The factor is the larger one: k's column is multiplied by sums of ds, which
/// are near 0, and would enlarge their errors in dq.
template <class Key>
tool::Inputs with_last_column(const Case& c, double factor, Key&& key) {
  tool::Inputs inputs = inputs_of(c);
  const TensorView& q = inputs.q.view;
  const TensorView& k = inputs.k.view;
  for (int64_t row = 0; row < q.rows(); ++row) {
    for (int64_t head = 0; head < q.heads; ++head) {
      tool::store(q, row, head, q.dim - 1, factor);
      tool::store(k, row, head, k.dim - 1, key(row));
    }
  }
  return inputs;
}

void expect_all_pairs(Case c, const tool::Inputs& inputs, double logit) {
  const tool::Reference reference = reference_of(inputs);
  for (const int ranks : {2, 4}) {
    for (const StrategyPair& pair : all_pairs()) {
      c.ranks = ranks;
      c.nodes = 2;
      c.forward = pair.forward;
      c.backward = pair.backward;
      expect_right_run(c, inputs, reference, logit);
    }
  }
}

TEST(Cases, LseThatDiffersByHundredsBetweenShards) {
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    for (const double sign : {1.0, -1.0}) {
      for (const char* mask : {"none", "causal"}) {
        const Case c{.problem =
                         fmt::format("dtype={} heads=2/2 dim=16 lengths=96 mask={}", dtype, mask)};
        // Quarters of the keys have logits about 0, 150, 300 and 450, rising or falling.
        const auto key = [&](int64_t row) { return sign * static_cast<double>(row / 24); };
        expect_all_pairs(c, with_last_column(c, 600, key), 450);
      }
    }
  }
}

TEST(Cases, AllLogitsFarBelowAnySentinel) {
  for (const char* dtype : {"f64", "f32"}) {
    for (const char* partition : {"contiguous", "striped"}) {
      const Case c{.problem = fmt::format("dtype={} heads=2/2 dim=16 lengths=40,9 padded=48,9 "
                                          "kv_padded=48,9 mask=causal",
                                          dtype),
                   .partition = partition};
      // About -60000 on every logit.
      expect_all_pairs(c, with_last_column(c, 60000, [](int64_t) { return -4.0; }), 60000);
    }
  }
}

TEST(Cases, QueriesThatSeeNoKey) {
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    for (const char* partition : {"contiguous", "zigzag", "striped", "balanced"}) {
      expect_everywhere(fmt::format("dtype={} heads=2/1 dim=16 lengths=8 kv_lengths=4 "
                                    "mask=bottom_right",
                                    dtype),
                        partition);
    }
  }
}

TEST(Cases, LargeDimsOverThreeOddDocuments) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* dims : {"dim=192 dim_v=128", "dim=512"}) {
      expect_everywhere(
          fmt::format("dtype={} heads=2/2 {} lengths=37,5,61 mask=causal", dtype, dims), "zigzag");
    }
  }
}

/// Index math alone: no tensor of this size is made.
TEST(Cases, OffsetsBeyondThirtyTwoBits) {
  constexpr int64_t kRows = int64_t{1} << 31;
  TensorView view = packed_view(nullptr, DType::kBF16, kRows, 64, 576);
  EXPECT_EQ(view.offset(kRows - 1, 63), (kRows - 1) * 64 * 576 + 63 * 576);
  EXPECT_EQ(view.extent_bytes(), kRows * 64 * 576 * 2);
  const std::vector<int32_t> pages = {3, 2147483646};
  view.batch = 2;
  view.seq = 16;
  view.stride_batch = 16 * 64 * 576;
  view.pages = pages.data();
  EXPECT_EQ(view.offset(17, 1), 2147483646LL * 16 * 64 * 576 + 64 * 576 + 576);
}

TEST(Cases, MessagesBeyondThirtyTwoBits) {
  const Problem problem =
      *parse_problem("dtype=bf16 heads=8/8 dim=128 lengths=2147483648 mask=none");
  const Setting setting{.problem = problem,
                        .partition = *Partition::make(problem, PartitionKind::kContiguous, 2),
                        .topology = Topology::blocks(2, 1),
                        .forward = "ring",
                        .backward = "ring"};
  const Strategy& ring = **find_strategy("ring");
  const int64_t half = (int64_t{1} << 30) * 8 * (128 + 128);  // elements of k and v of one rank
  EXPECT_EQ(ring.build(setting, Direction::kForward, 0)->bytes_sent(), half * 2);
  EXPECT_EQ(ring.build(setting, Direction::kBackward, 1)->bytes_sent(), half * (2 + 4));
}

constexpr const char* kManyRows = " heads=1/1 dim=8 lengths=65537 mask=causal";

TEST(Cases, MoreRowsThanSixteenBitsCount) {
  for (const char* lengths :
       {"lengths=65537 kv_lengths=70 mask=none", "lengths=70 kv_lengths=65537 mask=bottom_right",
        "lengths=1,90 padded=65500,90 kv_padded=65500,90 mask=causal"}) {
    expect_conforms({.problem = fmt::format("dtype=f32 heads=1/1 dim=8 {}", lengths),
                     .ranks = 2,
                     .partition = "zigzag"});
  }
}

/// float64 by one rank of cpu/tiled, which other cases hold against the definition: the row-wise
/// reference takes a minute here.
tool::Reference float64_of(const std::string& problem, const tool::Inputs& inputs) {
  const Case c{.problem = "dtype=f64" + problem};
  tool::Inputs wide = inputs_of(c);
  copy_values(inputs.q.view, wide.q.view);
  copy_values(inputs.k.view, wide.k.view);
  copy_values(inputs.v.view, wide.v.view);
  copy_values(inputs.dout.view, wide.dout.view);
  auto results = run_case(c, wide, shared_device());
  EXPECT_TRUE(results.ok());
  return {.o = std::move(results->o),
          .lse = std::move(results->lse),
          .dq = std::move(results->dq),
          .dk = std::move(results->dk),
          .dv = std::move(results->dv)};
}

TEST(Cases, ManyRowsOnBothSides) {
  for (const char* window : {"", " window=40,0", " chunk=300 prefix=20"}) {
    const std::string problem = std::string(kManyRows) + window;
    const Case c{.problem = "dtype=f32" + problem, .ranks = 2, .partition = "zigzag"};
    const tool::Inputs inputs = inputs_of(c);
    expect_right_run(c, inputs, float64_of(problem, inputs));
  }
}

}  // namespace
}  // namespace longspan::testkit
