#include "gguf/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace sinew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Metadata example() {
  Metadata metadata("model.gguf");
  metadata.insert("unsigned", MetaScalar(std::uint64_t{7}));
  metadata.insert("signed", MetaScalar(std::int64_t{-7}));
  metadata.insert("huge", MetaScalar(std::numeric_limits<std::uint64_t>::max()));
  metadata.insert("real", MetaScalar(0.5));
  metadata.insert("flag", MetaScalar(true));
  metadata.insert("text", MetaScalar(std::string("llama")));
  MetaArray numbers;
  numbers.unsigned_integers = {1, 2};
  numbers.element_type = 4;
  numbers.size = 2;
  metadata.insert("numbers", numbers);
  MetaArray empty;
  empty.element_type = 5;
  metadata.insert("empty", empty);
  return metadata;
}

TEST(Metadata, KeepsTheOrderOfTheFileAndRefusesASecondValue) {
  Metadata metadata = example();
  EXPECT_THAT(metadata.keys(), ElementsAre("unsigned", "signed", "huge", "real", "flag", "text",
                                           "numbers", "empty"));
  EXPECT_FALSE(metadata.insert("real", MetaScalar(1.5)));
  EXPECT_EQ(*metadata.real("real"), 0.5);
  EXPECT_EQ(metadata.keys().size(), 8u);
}

TEST(Metadata, IntegerTakesBothSigns) {
  EXPECT_EQ(*example().integer("unsigned"), 7);
  EXPECT_EQ(*example().integer("signed"), -7);
}

TEST(Metadata, IntegerBeyond63BitsIsAnErrorNotANegativeNumber) {
  const auto result = example().integer("huge");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidFile);
  EXPECT_THAT(result.error().message, HasSubstr("18446744073709551615"));
}

TEST(Metadata, ErrorsNameFileKeyAndBothKinds) {
  const auto wrong = example().integer("text");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("model.gguf: the key 'text' must hold an integer"));
  EXPECT_THAT(wrong.error().message, HasSubstr("holds a string"));
  const auto missing = example().string("nothing");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("the key 'nothing' is missing"));
}

TEST(Metadata, EveryGetterRefusesAnotherKind) {
  const Metadata metadata = example();
  EXPECT_FALSE(metadata.real("unsigned"));
  EXPECT_FALSE(metadata.boolean("unsigned"));
  EXPECT_FALSE(metadata.string("real"));
  EXPECT_FALSE(metadata.strings("numbers"));
  EXPECT_FALSE(metadata.reals("numbers"));
  EXPECT_FALSE(metadata.integers("unsigned"));
  EXPECT_FALSE(metadata.integer("numbers"));
}

TEST(Metadata, DefaultsStandInForMissingKeysOnly) {
  const Metadata metadata = example();
  EXPECT_EQ(*metadata.integer_or("nothing", 3), 3);
  EXPECT_EQ(*metadata.integer_or("unsigned", 3), 7);
  EXPECT_FALSE(metadata.integer_or("text", 3));
  EXPECT_EQ(*metadata.real_or("nothing", 1.5), 1.5);
  EXPECT_EQ(*metadata.boolean_or("nothing", true), true);
  EXPECT_EQ(*metadata.string_or("nothing", "x"), "x");
  EXPECT_FALSE(metadata.string_or("flag", "x"));
}

TEST(Metadata, EmptyArraysReadAsEveryKind) {
  const Metadata metadata = example();
  EXPECT_TRUE(metadata.strings("empty")->empty());
  EXPECT_TRUE(metadata.integers("empty")->empty());
  EXPECT_TRUE(metadata.reals("empty")->empty());
  EXPECT_THAT(*metadata.integers("numbers"), ElementsAre(1, 2));
}

TEST(Metadata, ControlBytesOfAKeyDoNotReachTheTerminal) {
  const auto missing = example().integer("\x1B[2Jkey\n");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("\\x1b[2Jkey\\x0a"));
  EXPECT_EQ(missing.error().message.find('\x1B'), std::string::npos);
}

}  // namespace
}  // namespace sinew
