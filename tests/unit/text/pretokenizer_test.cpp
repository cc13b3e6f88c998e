#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace sinew {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> words(const std::string& name, std::string_view text) {
  const auto pretokenizer = Pretokenizer::create(name);
  EXPECT_TRUE(pretokenizer);
  std::vector<std::uint32_t> lengths;
  EXPECT_TRUE(pretokenizer->split(text, lengths));
  std::vector<std::string> result;
  for (const std::uint32_t length : lengths) {
    result.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  EXPECT_EQ(text, "");
  return result;
}

TEST(Pretokenizer, CutsDigitsAsEachVocabularyWasTrained) {
  EXPECT_THAT(words("llama-bpe", "x 12345"), ElementsAre("x", " ", "123", "45"));
  EXPECT_THAT(words("qwen2", "12"), ElementsAre("1", "2"));
  EXPECT_THAT(words("gpt-2", " 12345"), ElementsAre(" 12345"));
  EXPECT_THAT(words("smollm", " 12"), ElementsAre(" ", "1", "2"));
  EXPECT_THAT(words("deepseek-v3", "a12345b"), ElementsAre("a", "123", "45", "b"));
}

TEST(Pretokenizer, DeepSeekCutsCjkOutBeforeWords) {
  EXPECT_THAT(words("deepseek-v3", "ab\u4e2d\u6587\u3042 x"),
              ElementsAre("ab", "\u4e2d\u6587\u3042", " x"));
  // A piece ends where another stage has cut, so its white space is not kept for the next word.
  EXPECT_THAT(words("deepseek-v3", "a  \u4e2d"), ElementsAre("a", "  ", "\u4e2d"));
  EXPECT_THAT(words("deepseek-v3", "a  b"), ElementsAre("a", " ", " b"));
}

TEST(Pretokenizer, TakesContractionsInBothCasesOnlyWhereTheVocabularyDoes) {
  EXPECT_THAT(words("llama-bpe", "I'LL"), ElementsAre("I", "'LL"));
  EXPECT_THAT(words("gpt-2", "I'LL"), ElementsAre("I", "'", "LL"));
  EXPECT_THAT(words("gpt-2", "I'll"), ElementsAre("I", "'ll"));
}

TEST(Pretokenizer, MongolianVowelSeparatorIsNotWhiteSpace) {
  EXPECT_THAT(words("llama-bpe", "\u180e\u180e!"), ElementsAre("\u180e\u180e!"));
}

TEST(Pretokenizer, KnowsLettersOfUnicode15WhateverPcreKnows) {
  EXPECT_THAT(words("llama-bpe", "a\U00031350\U000323af\U00011f04"),
              ElementsAre("a\U00031350\U000323af\U00011f04"));
}

TEST(Pretokenizer, NamesTheSupportedOnesForAnotherName) {
  for (const char* name : {"", "default", "no-such"}) {
    const auto result = Pretokenizer::create(name);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(result.error().message, HasSubstr("deepseek-v3, "));
  }
}

TEST(Pretokenizer, LongRunsTakeTimeInProportionToTheirLength) {
  for (const char* name : {"deepseek-v3", "llama-bpe", "qwen2", "smollm", "gpt-2"}) {
    const auto pretokenizer = Pretokenizer::create(name);
    ASSERT_TRUE(pretokenizer);
    for (const char c : {' ', '\n', 'a', '1', '!', '\x01'}) {
      std::vector<std::uint32_t> lengths;
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_TRUE(pretokenizer->split(std::string(1u << 20, c), lengths)) << name << int(c);
      // One MiB takes some 0.1 s with sanitizers; a quadratic scan takes hours.
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5))
          << name << int(c);
    }
  }
}

}  // namespace
}  // namespace sinew
