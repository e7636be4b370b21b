// Every kind of bad problem text, with what the message says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "longspan/problem.h"

namespace longspan {
namespace {

using testing::HasSubstr;

constexpr std::string_view kRequired = "dtype=f32 heads=4/2 dim=8 lengths=16";

/// The message of a text that must be refused.
std::string refusal(std::string_view text) {
  const Result<Problem> result = parse_problem(text);
  if (result.ok()) return "accepted: " + result->text();
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(result.error().where, "problem");
  return result.error().message;
}

std::string refusal_with(std::string_view more) {
  return refusal(std::string(kRequired) + " " + std::string(more));
}

/// A text without one of the required keys, and that key with another value.
std::string with(std::string_view key, std::string_view value) {
  std::string text;
  for (const char* word : {"dtype=f32", "heads=4/2", "dim=8", "lengths=16"}) {
    const std::string_view view(word);
    if (view.substr(0, view.find('=')) != key) text += std::string(view) + " ";
  }
  return text + std::string(key) + "=" + std::string(value);
}

TEST(ProblemErrors, ScaleMustFitTheArithmetic) {
  const auto narrow = parse_problem("dtype=bf16 heads=1/1 dim=8 lengths=4 scale=1e300");
  ASSERT_FALSE(narrow.ok());
  EXPECT_NE(narrow.error().message.find("scale=1e+300"), std::string::npos);
  EXPECT_NE(narrow.error().message.find("1e+38"), std::string::npos);
  EXPECT_TRUE(parse_problem("dtype=f64 heads=1/1 dim=8 lengths=4 scale=1e300").ok());
}

TEST(ProblemErrors, UnknownKeysNameAllKeys) {
  const std::string message = refusal_with("strategy=ring");
  EXPECT_THAT(message, HasSubstr("unknown key \"strategy\" (value \"ring\")"));
  for (const KeyInfo& key : problem_keys()) EXPECT_THAT(message, HasSubstr(std::string(key.name)));
  EXPECT_THAT(refusal_with("=4"), HasSubstr("unknown key \"\""));
  EXPECT_THAT(refusal_with("Mask=none"), HasSubstr("unknown key \"Mask\""));
}

TEST(ProblemErrors, WordsMustBeKeyAndValue) {
  EXPECT_THAT(refusal_with("causal"), HasSubstr("\"causal\" is not of the form key=value"));
  EXPECT_THAT(refusal_with("mask= none"), HasSubstr("mask is empty; allowed: none, causal"));
}

TEST(ProblemErrors, RepeatedKeys) {
  EXPECT_THAT(refusal_with("dim=8"), HasSubstr("dim is given twice (dim=8 the second time)"));
}

TEST(ProblemErrors, EveryKeyRefusesTheEmptyValueAndNonsense) {
  for (const KeyInfo& key : problem_keys()) {
    const std::string allowed = std::string("; allowed: ") + std::string(key.allowed);
    EXPECT_EQ(refusal(with(key.name, "")), std::string(key.name) + " is empty" + allowed);
    EXPECT_EQ(refusal(with(key.name, "@")), std::string(key.name) + "=@ is not allowed" + allowed);
    EXPECT_EQ(refusal(with(key.name, "none,")),
              std::string(key.name) + "=none, is not allowed" + allowed);
  }
}

TEST(ProblemErrors, RequiredKeysMustBeThere) {
  for (const std::string_view missing : {"dtype", "heads", "dim", "lengths"}) {
    std::string text = with(missing, "");
    text.resize(text.size() - missing.size() - 2);
    EXPECT_THAT(refusal(text), HasSubstr(std::string(missing) + " is missing; allowed: "));
  }
  EXPECT_THAT(refusal(""), HasSubstr("dtype is missing"));
  EXPECT_THAT(refusal(" \t\n"), HasSubstr("dtype is missing"));
}

TEST(ProblemErrors, ValuesOutOfRange) {
  constexpr std::pair<std::string_view, std::string_view> kBad[] = {
      {"dtype", "fp32"},
      {"dtype", "F32"},
      {"heads", "4"},
      {"heads", "4/0"},
      {"heads", "0/1"},
      {"heads", "-4/2"},
      {"heads", "4/2/1"},
      {"heads", "1048577/1"},
      {"heads", "4,2"},
      {"heads", "99999999999999999999/1"},
      {"dim", "0"},
      {"dim", "577"},
      {"dim", "8,8"},
      {"dim", "8.0"},
      {"dim", "+8"},
      {"dim", "0x8"},
      {"dim_v", "-1"},
      {"dim_v", "1000"},
      {"lengths", "-1"},
      {"lengths", "2147483649"},
      {"lengths", "99999999999999999999"},
      {"lengths", "9223372036854775808"},
      {"lengths", "16,,2"},
      {"lengths", "16,"},
      {"lengths", ",16"},
      {"lengths", "1e3"},
      {"kv_lengths", "-5"},
      {"padded", "-16"},
      {"kv_padded", "16;16"},
      {"tokens", "-1"},
      {"tokens", "16,16"},
      {"kv_tokens", "99999999999999999999"},
      {"mask", "Causal"},
      {"align", "bottom_left"},
      {"window", "1"},
      {"window", "-2,0"},
      {"window", "1,2,3"},
      {"layout", "bhsd"},
      {"scale", "inf"},
      {"scale", "nan"},
      {"scale", "-inf"},
      {"scale", "1e999"},
      {"scale", "0.5x"},
      {"softcap", "-1"},
      {"softcap", "nan"},
      {"alibi", "slopes"},
      {"bias", "b"},
      {"sink", "on"},
      {"dropout", "1"},
      {"dropout", "-0.1"},
      {"dropout_seed", "-1"},
      {"page", "-1"},
      {"fp8", "e4m3"},
      {"deterministic", "yes"},
      {"invariant", "1"},
      {"max_logit", "True"},
      {"device_lengths", "1"},
  };
  for (const auto& [key, value] : kBad) {
    const std::string start =
        std::string(key) + "=" + std::string(value) + " is not allowed; allowed: ";
    EXPECT_THAT(refusal(with(key, value)), testing::StartsWith(start));
  }
}

TEST(ProblemErrors, KeysThatContradictEachOther) {
  EXPECT_THAT(refusal("dtype=f32 heads=6/4 dim=8 lengths=16"),
              HasSubstr("heads=6/4: the query heads 6 must be a multiple of the key heads 4"));
  EXPECT_THAT(refusal("dtype=f32 heads=2/4 dim=8 lengths=16"), HasSubstr("heads=2/4"));
  EXPECT_THAT(refusal_with("kv_lengths=4,5"),
              HasSubstr("kv_lengths has 2 entries but lengths has 1; one per sequence"));
  EXPECT_THAT(refusal_with("padded=16,16"), HasSubstr("padded has 2 entries"));
  EXPECT_THAT(refusal_with("kv_padded=16,16"), HasSubstr("kv_padded has 2 entries"));
  EXPECT_THAT(refusal_with("padded=15"),
              HasSubstr("padded: sequence 0 has extent 15 but length 16"));
  EXPECT_THAT(refusal_with("kv_padded=15"), HasSubstr("kv_padded: sequence 0 has extent 15"));
  EXPECT_THAT(refusal_with("tokens=15"), HasSubstr("tokens=15: the sequences need 16 rows"));
  EXPECT_THAT(refusal_with("kv_tokens=15"), HasSubstr("kv_tokens=15"));
  EXPECT_THAT(refusal("dtype=f32 heads=1/1 dim=1 lengths=2147483648,1"),
              HasSubstr("2147483649 tokens up to sequence 1; at most 2147483648"));
  EXPECT_THAT(refusal("dtype=f64 heads=1048576/1 dim=576 lengths=2147483648"),
              HasSubstr("use fewer tokens or heads"));
  EXPECT_THAT(refusal("dtype=f64 heads=1/1 dim=576 lengths=2147483648 dim_v=1"),
              HasSubstr("accepted"));
}

TEST(ProblemErrors, LayoutsNeedEqualExtents) {
  for (const std::string layout : {"bshd", "sbhd"}) {
    const std::string start = "dtype=f32 heads=1/1 dim=1 layout=" + layout;
    const auto expected = HasSubstr("layout=" + layout + ": needs equal extents");
    EXPECT_THAT(refusal(start + " lengths=3,4"), expected);
    EXPECT_THAT(refusal(start + " lengths=4,4 kv_lengths=3,4"), expected);
    EXPECT_THAT(refusal(start + " lengths=4,4 tokens=9"), expected);
    EXPECT_THAT(refusal(start + " lengths=3,4 padded=4,4 kv_padded=4,4"), HasSubstr("accepted"));
  }
}

TEST(ProblemErrors, BottomRightContradictsTopLeft) {
  EXPECT_THAT(refusal_with("mask=bottom_right align=top_left"),
              HasSubstr("mask=bottom_right contradicts align=top_left; drop one of them"));
}

TEST(ProblemErrors, FieldsFilledInByHandAreChecked) {
  for (const auto& [key, value] : {std::pair<const char*, const char*>{"heads", "0/0"},
                                   {"dim", "0"},
                                   {"lengths", ""},
                                   {"scale", "x"},
                                   {"page", "many"},
                                   {"colour", "red"}}) {
    ProblemFields fields = *parse_fields(kRequired);
    fields.values[key] = value;
    const Result<Problem> result = make_problem(fields);
    ASSERT_FALSE(result.ok()) << key;
    EXPECT_THAT(result.error().message, HasSubstr(key));
  }
}

}  // namespace
}  // namespace longspan
