// Sound files survive a round trip; every way to lie in a header is refused with its reason.
#include "safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace longspan::tool {
namespace {

using testing::HasSubstr;

std::string temporary_path(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / ("longspan_" + name)).string();
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string with_length(const std::string& json, const std::string& data) {
  const uint64_t length = json.size();
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  return prefix + json + data;
}

struct BadHeader {
  const char* json;
  int64_t data_bytes;
  const char* message;
};

class BadHeaders : public testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaders, IsRefusedWithItsReason) {
  const auto header = parse_safetensors_header(GetParam().json, GetParam().data_bytes);
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(header.error().message, HasSubstr(GetParam().message));
}

const BadHeader kBadHeaders[] = {
    {"", 0, "not valid JSON"},
    {"{", 0, "not valid JSON"},
    {"[]", 0, "must be a JSON object; it is an array"},
    {"3", 0, "must be a JSON object"},
    {"null", 0, "must be a JSON object"},
    {"{}x", 0, "not valid JSON"},
    {"{}", 8, "bytes 0 to 8 belong to no tensor"},
    {R"({"q":1})", 0, "'q' must be an object"},
    {R"({"q":{}})", 0, "needs dtype, shape and data_offsets"},
    {R"({"q":{"dtype":"F32","shape":[1]}})", 4, "needs dtype, shape and data_offsets"},
    {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown field 'x'"},
    {R"({"q":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "'dtype' twice"},
    {R"({"q":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4, "'F8_E4M3' is not read"},
    {R"({"q":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "'dtype' must be a string"},
    {R"({"q":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "must be an array of numbers"},
    {R"({"q":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "whole numbers"},
    {R"({"q":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "whole numbers"},
    {R"({"q":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "whole numbers"},
    {R"({"q":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "whole numbers"},
    {R"({"q":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
     "beyond 2^63"},
    {R"({"q":{"dtype":"F32","shape":[1e30],"data_offsets":[0,4]}})", 4, "whole numbers"},
    {R"({"q":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
     "more than 2^63 bytes"},
    {R"({"q":{"dtype":"F32","shape":[9223372036854775807,2,1],"data_offsets":[0,4]}})", 4,
     "more than 2^63 bytes"},
    {R"({"q":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "more than 8"},
    {R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "has 8 bytes, but"},
    {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "needs 2 numbers"},
    {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
     "do not lie in the 4 data bytes"},
    {R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "truncated or damaged"},
    {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8, "'q' appears twice"},
    {R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
     R"("k":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12, "overlap"},
    {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("k":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
     12, "bytes 4 to 8 belong to no tensor"},
    {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8,
     "bytes 4 to 8 belong to no tensor"},
    {R"({"__metadata__":{"seed":1}})", 0, "metadata 'seed' must be a string"},
    {R"({"__metadata__":{"a":{"b":"c"}}})", 0, "metadata 'a' must be a string; it is an object"},
    {R"({"__metadata__":{"a":"b","a":"c"}})", 0, "metadata key 'a' appears twice"},
    {R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' appears twice"},
    {R"({"__metadata__":"x"})", 0, "'__metadata__' must be an object"},
};
INSTANTIATE_TEST_SUITE_P(Headers, BadHeaders, testing::ValuesIn(kBadHeaders));

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  const auto deep = parse_safetensors_header(std::string(1'000'000, '['), 0);
  ASSERT_FALSE(deep.ok());
  const auto inner =
      parse_safetensors_header(R"({"q":{"dtype":"F32","shape":)" + std::string(1'000'000, '['), 0);
  EXPECT_FALSE(inner.ok());
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const std::string json =
      R"({"__metadata__":{"seed":"3"},"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string whole = with_length(json, "12345678");
  const std::string path = temporary_path("truncated.safetensors");
  write_bytes(path, whole);
  ASSERT_TRUE(SafetensorsFile::open(path).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    write_bytes(path, whole.substr(0, size));
    const auto file = SafetensorsFile::open(path);
    ASSERT_FALSE(file.ok()) << size;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(file.error().message, HasSubstr(path));
  }
}

TEST(Safetensors, HeaderLengthsThatCannotBeAreRefused) {
  const std::string path = temporary_path("length.safetensors");
  write_bytes(path, std::string(8, '\xff') + "{}");
  auto file = SafetensorsFile::open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("above the limit of 100000000 bytes"));
  write_bytes(path, with_length(std::string(50, ' '), "").substr(0, 20));
  file = SafetensorsFile::open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("passes the end of the file (20 bytes)"));
}

TEST(Safetensors, FoldersAndMissingFilesAreNamed) {
  EXPECT_THAT(SafetensorsFile::open(testing::TempDir()).error().message,
              HasSubstr("not a regular file"));
  EXPECT_THAT(SafetensorsFile::open("/nowhere/x.safetensors").error().message,
              HasSubstr("cannot be opened"));
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const std::string path = temporary_path("round.safetensors");
  const float values[] = {1, 2, 3, 4, 5, 6};
  const int32_t counts[] = {0, 2, 3};
  auto output = OutputFile::open(path);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE(write_safetensors(*output,
                                {{"q", FileType::kF32, {3, 2}, std::as_bytes(std::span(values))},
                                 {"empty", FileType::kBF16, {0, 7}, {}},
                                 {"cu", FileType::kI32, {3}, std::as_bytes(std::span(counts))}},
                                {{"seed", "9"}, {"note", "a \"quote\""}})
                  .ok());
  ASSERT_TRUE(output->commit().ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file->header().metadata.at("note"), "a \"quote\"");
  EXPECT_EQ(file->find("empty")->shape, (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(file->find("nothing"), nullptr);
  const auto bytes = file->read(*file->find("q"));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(std::memcmp(bytes->data(), values, sizeof(values)), 0);
  EXPECT_EQ(*file->read_integers("cu"), (std::vector<int64_t>{0, 2, 3}));
  EXPECT_FALSE(file->read_integers("q").ok());
}

TEST(Safetensors, ForeignNamesCannotDisturbATerminal) {
  EXPECT_EQ(shown("a\x1b[31m\n"), "'a\\x1b[31m\\x0a'");
  EXPECT_EQ(shown(std::string(100, 'x')).size(), 65u);
}

}  // namespace
}  // namespace longspan::tool
