#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/reader.h"
#include "support/gguf_writer.h"

namespace sinew {
namespace {

using test::Bytes;
using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufWriter part_of(std::uint16_t number, std::uint16_t count, std::int32_t tensors,
                   const std::string& tensor) {
  GgufWriter writer;
  writer.add("split.no", number).add("split.count", count).add("split.tensors.count", tensors);
  writer.tensor(tensor, TensorType::kF32, {8});
  return writer;
}

Result<GgufModel> parse(const std::vector<Bytes>& files) {
  std::vector<GgufPart> parts;
  for (const Bytes& file : files)
    parts.push_back({"part" + std::to_string(parts.size() + 1), file});
  return GgufModel::parse(parts);
}

TEST(GgufSplit, PartsBecomeOneModel) {
  GgufWriter first = part_of(0, 2, 2, "a");
  first.add("general.architecture", "llama");
  const auto model = parse({first.bytes(), part_of(1, 2, 2, "b").bytes()});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(*model->metadata().string("general.architecture"), "llama");
  EXPECT_THAT(model->paths(), ElementsAre("part1", "part2"));
  EXPECT_EQ(model->find("a")->part, 0u);
  EXPECT_EQ(model->find("b")->part, 1u);
}

TEST(GgufSplit, NamesThePartsWhenSomeAreMissing) {
  const auto alone = parse({part_of(0, 3, 3, "a").bytes()});
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code, ErrorCode::kInvalidFile);
  EXPECT_THAT(alone.error().message, HasSubstr("has 3 parts, and 1 were given (part1)"));
  EXPECT_THAT(alone.error().message, HasSubstr("NAME-00001-of-00003.gguf"));
}

TEST(GgufSplit, RefusesPartsInAnotherOrder) {
  const auto model = parse({part_of(1, 2, 2, "a").bytes(), part_of(0, 2, 2, "b").bytes()});
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message,
              HasSubstr("part1: the key 'split.no' says that this is part 2"));
}

TEST(GgufSplit, RefusesAPartThatKnowsNothingOfTheSplit) {
  GgufWriter stranger;
  stranger.tensor("b", TensorType::kF32, {8});
  const auto model = parse({part_of(0, 2, 2, "a").bytes(), stranger.bytes()});
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("part2: the key 'split.count' says"));
}

TEST(GgufSplit, RefusesPartsOfDifferentModels) {
  const auto counts = parse({part_of(0, 2, 3, "a").bytes(), part_of(1, 2, 3, "b").bytes()});
  ASSERT_FALSE(counts);
  EXPECT_THAT(counts.error().message, HasSubstr("has 3 tensors, and its parts have 2"));
  const auto twice = parse({part_of(0, 2, 2, "a").bytes(), part_of(1, 2, 2, "a").bytes()});
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message,
              HasSubstr("part2: the tensor 'a' is there twice, first in part1"));
}

TEST(GgufSplit, AMergedModelKeepsACountOfZero) {
  EXPECT_TRUE(parse({part_of(0, 0, 9, "a").bytes()}));
}

TEST(GgufSplit, EveryPartHasItsOwnAlignment) {
  GgufWriter second = part_of(1, 2, 2, "b");
  second.alignment(64).add("general.alignment", std::uint32_t{64});
  const auto model = parse({part_of(0, 2, 2, "a").bytes(), second.bytes()});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->find("b")->offset % 64, 0u);
}

TEST(SplitPaths, NamesAllPartsWhenGivenAnyOfThem) {
  const auto paths = split_paths("/m/k2-00002-of-00003.gguf");
  ASSERT_TRUE(paths);
  EXPECT_THAT(*paths, ElementsAre("/m/k2-00001-of-00003.gguf", "/m/k2-00002-of-00003.gguf",
                                  "/m/k2-00003-of-00003.gguf"));
}

TEST(SplitPaths, OtherNamesStandAlone) {
  for (const std::string path :
       {"model.gguf", "", "-00001-of-00002.bin", "m-0001-of-0002.gguf", "m-0000a-of-00002.gguf",
        "m_00001-of-00002.gguf", "00001-of-00002.gguf"}) {
    const auto paths = split_paths(path);
    ASSERT_TRUE(paths) << path;
    EXPECT_THAT(*paths, ElementsAre(path));
  }
}

TEST(SplitPaths, RefusesNumbersThatCannotBe) {
  for (const std::string path : {"m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
                                 "m-00001-of-00000.gguf", "m-00001-of-99999.gguf"}) {
    const auto paths = split_paths(path);
    ASSERT_FALSE(paths) << path;
    EXPECT_THAT(paths.error().message, HasSubstr(path));
  }
}

}  // namespace
}  // namespace sinew
