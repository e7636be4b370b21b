#include "providers/prepared/sha256.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

namespace longspan::prepared {
namespace {

std::string sum_of(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/longspan_sha256";
  std::ofstream(path, std::ios::binary) << text;
  const Result<std::string> sum = sha256_of_file(path);
  return sum.ok() ? *sum : sum.error().message;
}

TEST(Sha256, ExamplesOfTheStandard) {
  EXPECT_EQ(sum_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sum_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sum_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sum_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/// Lengths around those where the padding needs a block of its own.
TEST(Sha256, EveryLengthGivesAnotherSum) {
  std::set<std::string> sums;
  for (size_t n = 0; n < 200; ++n) sums.insert(sum_of(std::string(n, 'x')));
  EXPECT_EQ(sums.size(), 200u);
}

TEST(Sha256, FilesThatAreNotThere) {
  const Result<std::string> sum = sha256_of_file("/nowhere/file");
  ASSERT_FALSE(sum.ok());
  EXPECT_EQ(sum.error().message, "/nowhere/file cannot be read");
}

}  // namespace
}  // namespace longspan::prepared
