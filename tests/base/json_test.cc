// JSON of others: what is no value is refused, whatever it is.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace longspan {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  const auto value = parse_json(text);
  return value.ok() ? "taken" : value.error().message;
}

TEST(Json, ValuesAreTaken) {
  for (const char* text :
       {"1", "[]", "{}", R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})", "[[[[[[[[1]]]]]]]]"}) {
    const auto value = parse_json(text);
    ASSERT_TRUE(value.ok()) << value.error().text();
    EXPECT_EQ(*value, nlohmann::json::parse(text));
  }
}

TEST(Json, WhatIsNoJsonIsRefused) {
  for (const std::string text : {"", "{", "[1,]", "{\"a\": 1} x", "\xff", "{\"a\": 1e999}"}) {
    EXPECT_THAT(refusal_of(text), HasSubstr("bytes are not JSON")) << text;
  }
}

TEST(Json, AFieldStandsOnce) {
  EXPECT_THAT(refusal_of(R"({"a": 1, "b": 2, "a": 1})"), HasSubstr("two fields \"a\""));
  EXPECT_THAT(refusal_of(R"([{"a": {"b": 1, "c": {}, "b": 1}}])"), HasSubstr("two fields \"b\""));
}

TEST(Json, DeepValuesAreRefused) {
  EXPECT_THAT(refusal_of("[[[[[[[[[1]]]]]]]]]"), HasSubstr("nested deeper than 8"));
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 200000; ++i) deep += open;
    EXPECT_NE(refusal_of(deep), "taken");
    deep += "1" + std::string(200000, open[0] == '[' ? ']' : '}');
    EXPECT_THAT(refusal_of(deep), HasSubstr("nested deeper than 8"));
  }
}

TEST(Texts, AreReadWhole) {
  const std::string path = testing::TempDir() + "text";
  std::ofstream(path) << "12345";
  EXPECT_EQ(read_text(path, 5).value(), "12345");
  EXPECT_THAT(read_text(path, 4).error().message, HasSubstr("has more than 4 bytes"));
}

TEST(Texts, ThatCannotBeReadAreNamed) {
  EXPECT_THAT(read_text("/nowhere/text", 9).error().message,
              HasSubstr("'/nowhere/text' cannot be read: No such file"));
  EXPECT_THAT(read_text("/", 9).error().message, HasSubstr("'/' cannot be read: Is a directory"));
  EXPECT_THAT(read_text("/dev/zero", 9).error().message, HasSubstr("more than 9 bytes"));
}

}  // namespace
}  // namespace longspan
