#include "engine/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/process.h"

namespace sinew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Record example() {
  Record record;
  record.program = "1.2.3";
  record.layout = "1 rank";
  record.chunk_tokens = 2;
  record.model = {"ab", {{"output.weight", "cd"}}};
  record.reference.layers = 1;
  record.reference.run.prompt = {5, 6, 7};
  record.reference.run.greedy = {8};
  PlaceTrace& place = record.reference.run.traces[{0, 1}];
  place.positions = {0, 1, 2};
  for (int i = 0; i < 3 * kSketchRows; ++i) place.sketches.push_back(static_cast<float>(i) / 3.0F);
  record.reference.noise[{0, 1}] = {0.1F, 0.2F, 0.3F};
  for (const std::int64_t position : {1, 2}) {
    record.reference.run.rows.push_back({position, {8, 9}, {2.5F, -1.0F}, 3.25});
    record.reference.row_noise.push_back({1e-5, 0.125});
  }
  return record;
}

TEST(Record, KeepsTheRowsPositionsAndEveryValueExactly) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("record.json");
  const Record written = example();
  ASSERT_TRUE(write_record(path, written));
  const auto read = read_record(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->model.header, "ab");
  EXPECT_EQ(read->model.tensors, written.model.tensors);
  EXPECT_EQ(read->reference.run.prompt, written.reference.run.prompt);
  const PlaceTrace& kept = read->reference.run.traces.at({0, 1});
  EXPECT_THAT(kept.positions, ElementsAre(1, 2));
  const std::vector<float>& sketches = written.reference.run.traces.at({0, 1}).sketches;
  EXPECT_EQ(kept.sketches, std::vector<float>(sketches.begin() + kSketchRows, sketches.end()));
  EXPECT_THAT(read->reference.noise.at({0, 1}), ElementsAre(0.2F, 0.3F));
  EXPECT_EQ(read->reference.run.rows[1].values, (std::vector<float>{2.5F, -1.0F}));
  EXPECT_EQ(read->reference.row_noise[1].largest, 0.125);
}

TEST(Record, FilesThatAreNoneAreRefusedByName) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("record.json");
  for (const char* text : {"", "{}", "[1]", "{\"schema\":2}", "{\"schema\":1}", "\x7f"}) {
    ASSERT_TRUE(test::write_file(path, text));
    const auto read = read_record(path);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidFile);
    EXPECT_THAT(read.error().message, HasSubstr(path));
  }
  EXPECT_EQ(read_record(folder.file("none")).error().code, ErrorCode::kNotFound);
}

TEST(Record, NoDamagedByteCrashes) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("record.json");
  ASSERT_TRUE(write_record(path, example()));
  const auto whole = test::read_file(path);
  ASSERT_TRUE(whole);
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string damaged = *whole;
    damaged[random() % damaged.size()] = static_cast<char>(random() % 96 + 32);
    if (round % 3 == 0) damaged.resize(random() % damaged.size());
    ASSERT_TRUE(test::write_file(path, damaged));
    const auto read = read_record(path);
    if (!read) {
      EXPECT_EQ(read.error().code, ErrorCode::kInvalidFile);
    }
  }
}

TEST(ModelIdentity, NamesTheTensorThatDiffers) {
  const ModelIdentity recorded{"ab", {{"a", "1"}, {"b", "2"}}};
  EXPECT_TRUE(same_model(recorded, recorded));
  EXPECT_TRUE(same_model(recorded, {"ab", {}}));
  EXPECT_THAT(same_model(recorded, {"ac", {}}).error().message, HasSubstr("header"));
  EXPECT_THAT(same_model(recorded, {"ab", {{"a", "1"}, {"b", "3"}}}).error().message,
              HasSubstr("tensor 'b'"));
}

}  // namespace
}  // namespace sinew
