#include "output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace longspan::tool {
namespace {

class OutputFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "longspan_output";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  std::string path() const { return (folder_ / "out").string(); }
  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::filesystem::path folder_;
};

TEST_F(OutputFiles, AppearsWholeOnCommit) {
  auto file = OutputFile::open(path());
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("abc").ok());
  EXPECT_FALSE(std::filesystem::exists(path()));
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(contents(path()), "abc");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFiles, LeavesAnExistingFileAloneWithoutCommit) {
  std::ofstream(path()) << "old";
  {
    auto file = OutputFile::open(path());
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("new").ok());
  }
  EXPECT_EQ(contents(path()), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFiles, ReplacesThroughALink) {
  std::ofstream(folder_ / "target") << "old";
  std::filesystem::create_symlink(folder_ / "target", path());
  auto file = OutputFile::open(path());
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("new").ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path()));
  EXPECT_EQ(contents((folder_ / "target").string()), "new");
}

TEST_F(OutputFiles, RefusesWhatCannotBeWritten) {
  EXPECT_THAT(OutputFile::open(folder_.string()).error().message, testing::HasSubstr("directory"));
  const auto missing = OutputFile::open((folder_ / "no" / "out").string());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(missing.error().message, testing::HasSubstr("cannot write"));
  EXPECT_EQ(files(), 0u);
}

TEST_F(OutputFiles, WritesDevicesDirectly) {
  auto file = OutputFile::open("/dev/null");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->write("abc").ok());
  EXPECT_TRUE(file->commit().ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace longspan::tool
