#include "host/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/process.h"

namespace sinew {
namespace {

using ::testing::HasSubstr;

class MappedFiles : public ::testing::Test {
 protected:
  static void expect_refused(const std::string& path, ErrorCode code, const char* cause) {
    const auto file = MappedFile::open(path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, code) << file.error().message;
    EXPECT_THAT(file.error().message, HasSubstr(path));
    EXPECT_THAT(file.error().message, HasSubstr(cause));
  }
  std::string written(const char* name, std::string_view bytes) {
    const std::string path = folder_.file(name);
    EXPECT_TRUE(test::write_file(path, bytes));
    return path;
  }
  static std::string text(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  test::TemporaryFolder folder_;
};

TEST_F(MappedFiles, BytesAreThoseOfTheFile) {
  const auto file = MappedFile::open(written("a", "twelve bytes"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text(*file), "twelve bytes");
  EXPECT_GE(file->descriptor(), 0);
}

TEST_F(MappedFiles, EmptyFileHasNoBytes) {
  const auto file = MappedFile::open(written("empty", ""));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFiles, MovedFileStaysMapped) {
  auto file = MappedFile::open(written("a", "one"));
  auto other = MappedFile::open(written("b", "two"));
  ASSERT_TRUE(file && other);
  MappedFile moved = std::move(*file);
  EXPECT_EQ(text(moved), "one");
  moved = std::move(*other);
  EXPECT_EQ(text(moved), "two");
  EXPECT_EQ(moved.path(), folder_.file("b"));
}

TEST_F(MappedFiles, MissingFileIsNotFound) {
  expect_refused(folder_.file("absent.gguf"), ErrorCode::kNotFound, "no such file");
}

TEST_F(MappedFiles, FolderIsNoFile) {
  expect_refused(SINEW_SOURCE_DIR "/src", ErrorCode::kIo, "not a regular file");
}

TEST_F(MappedFiles, PipeWithoutAWriterIsRefusedAtOnce) {
  const std::string path = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refused(path, ErrorCode::kIo, "not a regular file");
}

TEST_F(MappedFiles, PathThroughAFileCannotBeOpened) {
  expect_refused(written("a", "x") + "/model.gguf", ErrorCode::kIo, "cannot be opened");
}

TEST_F(MappedFiles, UnreadableFileCannotBeOpened) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  const std::string path = written("secret.gguf", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  expect_refused(path, ErrorCode::kIo, "cannot be opened");
}

}  // namespace
}  // namespace sinew
