#include "cli/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/gguf_writer.h"

namespace sinew {
namespace {

using test::Bytes;
using test::GgufWriter;
using ::testing::HasSubstr;
using ::testing::Not;

class ShowModel : public ::testing::Test {
 protected:
  ShowModel() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("sinew-show-") + test->name() + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~ShowModel() override { std::filesystem::remove_all(folder_); }

  std::string write(const GgufWriter& writer, const std::string& name = "m.gguf") {
    const std::string path = (folder_ / name).string();
    const Bytes bytes = writer.bytes();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  static std::string show(const std::string& path, bool json) {
    std::ostringstream out;
    const Status status = show_model(path, json, out);
    EXPECT_TRUE(status) << status.error().message;
    return out.str();
  }
  static GgufWriter example() {
    GgufWriter writer;
    writer.add("general.architecture", "llama").add("llama.block_count", std::uint32_t{2});
    writer.add("tokens", std::vector<std::string>(1000, "tok")).add("broken", "\xFF\x1B[2J");
    writer.tensor("w", TensorType::kQ4_0, {64, 3}).tensor("n", TensorType::kF32, {64});
    return writer;
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(ShowModel, TextNamesArchitectureTensorsAndTotals) {
  const std::string text = show(write(example()), false);
  EXPECT_THAT(text, HasSubstr("architecture  llama\n"));
  EXPECT_THAT(text, HasSubstr("parameters    256 (256) in 2 tensors"));
  EXPECT_THAT(text, HasSubstr("64 x 3"));
  EXPECT_THAT(text, HasSubstr("q4_0"));
}

TEST_F(ShowModel, TextShortensArraysAndKeepsControlBytesFromTheTerminal) {
  const std::string text = show(write(example()), false);
  EXPECT_THAT(text, HasSubstr("(1000 x string)"));
  EXPECT_THAT(text, Not(HasSubstr("\x1B")));
  EXPECT_LT(text.size(), 2000u);
}

TEST_F(ShowModel, JsonIsOneDocumentWithTheSameFacts) {
  const std::string path = write(example());
  const auto document = nlohmann::json::parse(show(path, true));
  EXPECT_EQ(document["files"][0]["path"], path);
  EXPECT_EQ(document["architecture"], "llama");
  EXPECT_EQ(document["parameters"], 256);
  EXPECT_EQ(document["metadata"]["tokens"]["count"], 1000);
  EXPECT_EQ(document["metadata"]["llama.block_count"], 2);
  ASSERT_EQ(document["tensors"].size(), 2u);
  EXPECT_EQ(document["tensors"][0]["shape"], nlohmann::json({64, 3}));
  EXPECT_EQ(document["tensors"][0]["bytes"], 108);
  EXPECT_EQ(document["types"][1]["type"], "q4_0");
}

TEST_F(ShowModel, AllPartsOfASplitModelAreShown) {
  for (std::uint16_t i = 0; i < 2; ++i) {
    GgufWriter part;
    part.add("split.no", i).add("split.count", std::uint16_t{2});
    part.tensor(i == 0 ? "a" : "b", TensorType::kF32, {8});
    write(part, i == 0 ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf");
  }
  const std::string path = write(example(), "other.gguf");
  const std::string second =
      (std::filesystem::path(path).parent_path() / "m-00002-of-00002.gguf").string();
  const auto document = nlohmann::json::parse(show(second, true));
  EXPECT_EQ(document["files"].size(), 2u);
  EXPECT_EQ(document["tensors"][1]["file"], 1);
  EXPECT_THAT(show(second, false), HasSubstr("in 2 files"));
}

TEST_F(ShowModel, AFileThatCannotBeReadLeavesTheOutputEmpty) {
  std::ostringstream out;
  const Status status = show_model(write(GgufWriter(7)), true, out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(out.str().empty());
}

TEST_F(ShowModel, AnOutputThatFailsIsAnError) {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  const Status status = show_model(write(example()), false, out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace sinew
