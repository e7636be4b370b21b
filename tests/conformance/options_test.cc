// Every pair of option values: the result is right, or the refusal says what to do instead.
#include "testkit/options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

/// What a problem says besides its options: each value stands beside all others.
const std::vector<Option>& shapes() {
  static const std::vector<Option> all = {
      {"dtype", "f64"},    {"dtype", "f16"},       {"dtype", "bf16"},     {"heads", "4/4"},
      {"heads", "3/1"},    {"heads", "1/1"},       {"dim", "1"},          {"dim", "19"},
      {"lengths", "1,0"},  {"lengths", "2,11"},    {"mask", "causal"},    {"mask", "bottom_right"},
      {"dim_v", "9"},      {"kv_lengths", "11,3"}, {"kv_lengths", "0,4"}, {"align", "bottom_right"},
      {"padded", "13,14"}, {"kv_padded", "16,12"}, {"tokens", "31"},      {"kv_tokens", "44"},
      {"layout", "sbhd"},  {"layout", "thd"},      {"scale", "-0.7"},     {"dropout_seed", "77"},
  };
  return all;
}

/// The problem with the options in it.
Case base_of(const std::vector<Option>& chosen) {
  const std::vector<Option> needed = {
      {"dtype", "f32"}, {"heads", "4/2"}, {"dim", "6"}, {"lengths", "7,7"}};
  const auto same_key = [](const std::vector<Option>& list, const Option& option) {
    return std::find_if(list.begin(), list.end(),
                        [&](const Option& other) { return other.key == option.key; });
  };
  std::string problem;
  for (const Option& standard : needed) {
    const auto given = same_key(chosen, standard);
    problem += (problem.empty() ? "" : " ") + (given == chosen.end() ? standard : *given).text();
  }
  Case c{.problem = problem};
  for (const Option& option : chosen) {
    if (same_key(needed, option) == needed.end()) c = with_option(c, option);
  }
  return c;
}

/// Singles and all pairs of different keys.
std::vector<std::vector<Option>> choices() {
  std::vector<Option> values = shapes();
  for (const auto& more : {options(), refused_options()}) {
    values.insert(values.end(), more.begin(), more.end());
  }
  std::vector<std::vector<Option>> all = {{}};
  for (size_t i = 0; i < values.size(); ++i) {
    all.push_back({values[i]});
    for (size_t j = i + 1; j < values.size(); ++j) {
      if (values[i].key != values[j].key) all.push_back({values[i], values[j]});
    }
  }
  return all;
}

bool has(const std::vector<Option>& chosen, const char* key) {
  return std::any_of(chosen.begin(), chosen.end(),
                     [&](const Option& option) { return option.key == key; });
}

/// Whether device_lengths meet what needs lengths that are known ahead.
bool needs_known_lengths(const std::vector<Option>& chosen) {
  if (!has(chosen, "device_lengths")) return false;
  return has(chosen, "align") ||
         std::find(chosen.begin(), chosen.end(), Option{"mask", "bottom_right"}) != chosen.end();
}

bool sums_over_ranks(const std::string& strategy) {
  return strategy == "ring" || strategy == "all_gather" || strategy == "hybrid";
}

/// Codes of which one must be given; none where the case must be computed.
std::vector<DeclineCode> expected_declines(const std::vector<Option>& chosen, const Case& c) {
  std::vector<DeclineCode> codes;
  if (has(chosen, "fp8")) codes.push_back(DeclineCode::kFp8);
  if (has(chosen, "page") && c.backward != kNoStrategy) codes.push_back(DeclineCode::kPage);
  if (needs_known_lengths(chosen)) codes.push_back(DeclineCode::kDeviceLengths);
  const bool sums = sums_over_ranks(c.forward) || sums_over_ranks(c.backward);
  if (has(chosen, "invariant") && c.ranks > 1 && sums) codes.push_back(DeclineCode::kInvariant);
  return codes;
}

MATCHER(NamesARemedy, "") {
  static const std::vector<std::string> words = {"use ",  "remove", "leave ", "ask for",
                                                 "drop ", "pad ",   "needed", "round "};
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return arg.find(word) != std::string::npos; });
}

/// Reasons of providers that are switched off or compute on other devices.
bool is_elsewhere(DeclineCode code) {
  return code == DeclineCode::kOff || code == DeclineCode::kDevice ||
         code == DeclineCode::kNotBuilt;
}

void expect_declined_with(const Case& c, const tool::Inputs& inputs,
                          const std::vector<DeclineCode>& codes) {
  const auto explained = explain(inputs.declared(), Topology::blocks(c.ranks, c.nodes),
                                 shared_device(), options_of(c));
  ASSERT_TRUE(explained.ok()) << explained.error().text();
  ASSERT_FALSE(explained->ok());
  int matching = 0;
  for (const Selection* selection : {&explained->forward, &explained->backward}) {
    for (const NamedDecline& d : selection->declines) {
      const bool stated = std::find(codes.begin(), codes.end(), d.decline.code) != codes.end();
      EXPECT_TRUE(stated || is_elsewhere(d.decline.code)) << name(d.decline.code);
      if (!stated) continue;
      EXPECT_THAT(d.decline.detail, NamesARemedy()) << d.name;
      ++matching;
    }
  }
  EXPECT_GT(matching, 0) << explained->text();
  const auto results = run_case(c, inputs, shared_device());
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.error().code, ErrorCode::kUnsupported) << results.error().text();
}

struct Place {
  StrategyPair strategies;
  std::string provider;
};

void PrintTo(const Place& place, std::ostream* out) {
  PrintTo(place.strategies, out);
  *out << " on " << place.provider;
}

std::vector<Place> places() {
  std::vector<Place> all;
  std::vector<StrategyPair> pairs = diagonal_pairs();
  pairs.push_back({"all_to_all", "head_parallel"});
  for (const std::string& forward : forward_strategies()) {
    pairs.push_back({forward, std::string(kNoStrategy)});
  }
  for (const StrategyPair& pair : pairs) {
    for (const char* provider : {"cpu/tiled", "cpu/reference"}) all.push_back({pair, provider});
  }
  return all;
}

class OptionPairs : public testing::TestWithParam<Place> {
 protected:
  Case case_of(Case c, int ranks) const {
    c.ranks = ranks;
    c.nodes = GetParam().strategies.forward == "hybrid" ? ranks : 1;
    c.forward = GetParam().strategies.forward;
    c.backward = GetParam().strategies.backward;
    c.partition = "zigzag";
    c.provider = GetParam().provider;
    return c;
  }
  bool forward_only() const { return GetParam().strategies.backward == kNoStrategy; }
};

TEST_P(OptionPairs, EveryPairIsRightOrDeclinedWithARemedy) {
  for (const std::vector<Option>& chosen : choices()) {
    // Forward alone adds nothing but what backward refuses.
    if (forward_only() && !has(chosen, "page")) continue;
    const Case base = base_of(chosen);
    const auto parsed = parse_problem(base.problem);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument) << parsed.error().text();
      EXPECT_THAT(parsed.error().message, NamesARemedy());
      continue;
    }
    const tool::Inputs inputs = inputs_of(base);
    const tool::Reference reference = reference_of(inputs, forward_only());
    for (const int ranks : {1, 3}) {
      const Case c = case_of(base, ranks);
      SCOPED_TRACE(text(c));
      const std::vector<DeclineCode> codes = expected_declines(chosen, c);
      if (codes.empty()) {
        expect_right_run(c, inputs, reference);
      } else {
        expect_declined_with(c, inputs, codes);
      }
    }
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Places, OptionPairs, testing::ValuesIn(places()));

}  // namespace
}  // namespace longspan::testkit
