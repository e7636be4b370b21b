// Values that come with a call and not with its problem: dropout's probability, seed and offset,
// the soft cap, slopes, scale. Which pairs dropout drops.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "numbers.h"
#include "testkit/groups.h"
#include "testkit/oracle_terms.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr uint64_t kSeed = 0x123456789abcdef0;
constexpr const char* kDropped =
    "heads=4/2 dim=8 dim_v=24 lengths=19,0,11 kv_lengths=23,3,17 mask=bottom_right dropout=0.3 "
    "dropout_seed=1311768467463790320";

tool::GroupResults must_run(
    const Case& c, const tool::Inputs& inputs,
    const std::function<void(Flight&)>& edit = [](Flight&) {}) {
  auto results = run_flights(c, inputs, edit);
  EXPECT_TRUE(results.ok()) << text(c) << ": " << (results.ok() ? "" : results.error().text());
  return results.ok() ? std::move(results).value() : tool::GroupResults{};
}

TEST(Philox, KnownAnswersOfRandom123) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Alibi, SlopesAreThoseOfTheOracle) {
  for (int64_t heads = 1; heads <= 130; ++heads) {
    const std::vector<double> expected = alibi_slopes(heads);
    const std::vector<double> slopes = default_alibi_slopes(heads);
    ASSERT_EQ(slopes.size(), expected.size()) << heads;
    for (size_t i = 0; i < slopes.size(); ++i) {
      EXPECT_NEAR(slopes[i], expected[i], 1e-15 * expected[i]) << "head " << i << " of " << heads;
    }
  }
}

/// Which pairs are kept, in the order of sequences, heads, queries and keys; hidden ones are not.
using Mask = std::vector<bool>;

template <class Body>
void for_pairs(const Problem& p, Body&& body) {
  const auto count = static_cast<int64_t>(p.lengths.sequences.size());
  for (int64_t s = 0; s < count; ++s) {
    const Sequence& sequence = p.lengths.sequences[static_cast<size_t>(s)];
    for (int64_t head = 0; head < p.heads_q; ++head) {
      for (int64_t q = 0; q < sequence.q_length; ++q) {
        for (int64_t k = 0; k < sequence.k_length; ++k) body(ScoreIndex{s, head, q, k});
      }
    }
  }
}

/// Equal scores and the unit vectors as values: O holds the probabilities.
tool::Inputs with_unit_values(tool::Inputs inputs) {
  const auto set_all = [](const TensorView& view, auto&& value) {
    for (int64_t row = 0; row < view.rows(); ++row) {
      for (int64_t head = 0; head < view.heads; ++head) {
        for (int64_t i = 0; i < view.dim; ++i) tool::store(view, row, head, i, value(row, i));
      }
    }
  };
  set_all(inputs.q.view, [](int64_t, int64_t) { return 0.0; });
  for (const Sequence& s : inputs.problem.lengths.sequences) {
    for (int64_t k = 0; k < s.k_length; ++k) {
      for (int64_t head = 0; head < inputs.v.view.heads; ++head) {
        for (int64_t i = 0; i < inputs.v.view.dim; ++i) {
          tool::store(inputs.v.view, s.k_offset + k, head, i, i == k ? 1 : 0);
        }
      }
    }
  }
  return inputs;
}

Mask mask_in(const tool::GroupResults& results, const Problem& p) {
  Mask mask;
  for_pairs(p, [&](const ScoreIndex& at) {
    const int64_t row = p.lengths.sequences[static_cast<size_t>(at.sequence)].q_offset + at.q;
    mask.push_back(tool::load(results.o.view, row, at.head, at.k) != 0);
  });
  return mask;
}

/// By the public definition; `offset` as dropout.h words it.
Mask mask_of(const tool::Inputs& inputs, double probability, uint64_t seed, uint64_t offset) {
  tool::Inputs drawn{.problem = inputs.problem};
  drawn.problem.dropout = probability;
  drawn.problem.dropout_seed = seed + offset * 0x9E3779B97F4A7C15u;
  const OracleTerms terms(drawn);
  Mask mask;
  for_pairs(inputs.problem, [&](const ScoreIndex& at) {
    mask.push_back(terms.visible(at) && terms.kept(at) != 0);
  });
  return mask;
}

class DropoutMask : public testing::TestWithParam<const char*> {};

TEST_P(DropoutMask, IsThatOfTheDefinitionWhereverItIsComputed) {
  Case c{.problem = fmt::format("dtype={} {}", GetParam(), kDropped)};
  const tool::Inputs inputs = with_unit_values(inputs_of(c));
  const Mask expected = mask_of(inputs, 0.3, kSeed, 0);
  for (const char* provider : {"cpu/tiled", "cpu/reference"}) {
    for (const StrategyPair& pair : all_pairs()) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        c.provider = provider;
        c.forward = pair.forward;
        c.backward = pair.backward;
        c.ranks = ranks;
        c.nodes = ranks % 2 == 0 ? 2 : 1;
        c.partition = ranks % 2 == 0 ? "zigzag" : "striped";
        EXPECT_EQ(mask_in(must_run(c, inputs), inputs.problem), expected) << text(c);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DropoutMask, testing::Values("f64", "f32", "f16", "bf16"));

class Dropouts : public testing::TestWithParam<StrategyPair> {
 protected:
  Case case_of(const std::string& problem) const {
    return {.problem = problem,
            .ranks = 3,
            .nodes = 3,
            .forward = GetParam().forward,
            .backward = GetParam().backward,
            .partition = "zigzag"};
  }
};

TEST_P(Dropouts, ReplayAndDifferByOffsetSeedAndProbability) {
  const Case c = case_of(std::string("dtype=f32 ") + kDropped);
  const tool::Inputs inputs = with_unit_values(inputs_of(c));
  const auto mask = [&](const Dropout& dropout) {
    const auto results = must_run(c, inputs, [&](Flight& f) { f.side.dropout = dropout; });
    return mask_in(results, inputs.problem);
  };
  const Mask first = mask({0.3, kSeed, 0});
  EXPECT_EQ(first, mask_of(inputs, 0.3, kSeed, 0));
  EXPECT_EQ(mask({0.3, kSeed, 0}), first);
  for (const Dropout& other : {Dropout{0.3, kSeed, 1}, Dropout{0.3, kSeed, uint64_t{1} << 40},
                               Dropout{0.3, kSeed + 1, 0}, Dropout{0.6, kSeed, 0}}) {
    const Mask changed = mask(other);
    EXPECT_NE(changed, first) << other.offset;
    EXPECT_EQ(changed, mask_of(inputs, other.probability, other.seed, other.offset));
  }
}

TEST_P(Dropouts, OfTheCallGoIntoGradients) {
  const Case c = case_of(std::string("dtype=f64 ") + kDropped);
  const tool::Inputs inputs = inputs_of(c);
  const Dropout dropout{0.55, 99, 12345};
  tool::Inputs asked = inputs_of(c);
  asked.problem.dropout = dropout.probability;
  asked.problem.dropout_seed = dropout.seed + dropout.offset * 0x9E3779B97F4A7C15u;
  const auto results = must_run(c, inputs, [&](Flight& f) { f.side.dropout = dropout; });
  expect_right(asked, results, reference_of(asked));
}

TEST_P(Dropouts, OfZeroAreNone) {
  const Case c = case_of(std::string("dtype=bf16 ") + kDropped);
  const Case without = case_of(
      "dtype=bf16 heads=4/2 dim=8 dim_v=24 lengths=19,0,11 kv_lengths=23,3,17 mask=bottom_right");
  const auto none = [](Flight& f) { f.side.dropout = Dropout{0, kSeed, 3}; };
  EXPECT_EQ(
      different_results(must_run(c, inputs_of(c), none), must_run(without, inputs_of(without))),
      "");
}

INSTANTIATE_TEST_SUITE_P(Strategies, Dropouts, testing::ValuesIn(diagonal_pairs()));

class Values : public Dropouts {};

TEST_P(Values, OfTheCallTakeThePlaceOfTheProblems) {
  const Case c = case_of(
      "dtype=f64 heads=6/2 dim=8 lengths=19,0,11 mask=causal softcap=2 alibi=default "
      "max_logit=true");
  const tool::Inputs inputs = inputs_of(c);
  tool::Inputs asked = inputs_of(c);
  asked.problem.softcap = 0.6;
  for (int64_t head = 0; head < 6; ++head) {
    tool::store(asked.slopes.view, 0, head, 0, 0.01 + 0.2 * static_cast<double>(head));
  }
  const auto results = must_run(c, inputs, [&](Flight& f) {
    f.side.softcap = 0.6;
    f.side.slopes = asked.slopes.view;
  });
  expect_right(asked, results, reference_of(asked));
}

TEST_P(Values, AbsentSlopesAreTheDefaultOnes) {
  const Case c = case_of("dtype=f32 heads=6/2 dim=8 lengths=19,0,11 mask=causal alibi=default");
  const tool::Inputs inputs = inputs_of(c);
  const auto results = must_run(c, inputs, [](Flight& f) { f.side.slopes = {}; });
  expect_right(inputs, results, reference_of(inputs));
}

INSTANTIATE_TEST_SUITE_P(Strategies, Values, testing::ValuesIn(diagonal_pairs()));

}  // namespace
}  // namespace longspan::testkit
