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

// The numbers of words are those of the ids that are known for the real vocabulary: 2, 1, 4 and 3
// words that are tokens as a whole.
TEST(Pretokenizer, KimiCutsHanOutOfWordsInOnePass) {
  EXPECT_THAT(words("kimi-k2", "Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(words("kimi-k2", "\u4f60\u597d\u4e16\u754c"),
              ElementsAre("\u4f60\u597d\u4e16\u754c"));
  EXPECT_THAT(words("kimi-k2", "1234567890"), ElementsAre("123", "456", "789", "0"));
  EXPECT_THAT(words("kimi-k2", "\u4e2d\u6587English\u6df7\u5408"),
              ElementsAre("\u4e2d\u6587", "English", "\u6df7\u5408"));
  // The white space before Han is cut as before anything else.
  EXPECT_THAT(words("kimi-k2", "a  \u4e2d"), ElementsAre("a", " ", " ", "\u4e2d"));
  EXPECT_THAT(words("kimi-k2", "\u3042\u4e2d\u3042"), ElementsAre("\u3042", "\u4e2d", "\u3042"));
}

TEST(Pretokenizer, WordsOfGpt4oEndWhereCapitalsBegin) {
  for (const char* name : {"gpt-4o", "minimax-m2", "kimi-k2", "tekken"}) {
    EXPECT_THAT(words(name, "camelCase"), ElementsAre("camel", "Case")) << name;
    EXPECT_THAT(words(name, "HTTPServer"), ElementsAre("HTTPServer")) << name;
    EXPECT_THAT(words(name, " ABC"), ElementsAre(" ABC")) << name;
    EXPECT_THAT(words(name, "\u00e9\u00c9\u00e9"), ElementsAre("\u00e9", "\u00c9\u00e9")) << name;
    EXPECT_THAT(words(name, "e\u0301a"), ElementsAre("e\u0301a")) << name;
  }
  EXPECT_THAT(words("gpt-4o", "I'LL don't"), ElementsAre("I'LL", " don't"));
  EXPECT_THAT(words("tekken", "don't 12"), ElementsAre("don", "'t", " ", "1", "2"));
  EXPECT_THAT(words("gpt-4o", "a//\n/b 1234"), ElementsAre("a", "//\n/", "b", " ", "123", "4"));
  EXPECT_THAT(words("kimi-k2", "//\n/b"), ElementsAre("//\n", "/b"));
}

TEST(Pretokenizer, OldDeepSeekCutsByScriptsAndLines) {
  EXPECT_THAT(words("deepseek-llm", "ab 12\u4e2d\u6587!? x \n"),
              ElementsAre("ab", " ", "12", "\u4e2d\u6587", "!?", " x", " ", "\n"));
  EXPECT_THAT(words("deepseek-coder", "ab 12\n\n"), ElementsAre("ab", " ", "1", "2", "\n", "\n"));
}

TEST(Pretokenizer, LongRunsTakeTimeInProportionToTheirLength) {
  for (const char* name : {"deepseek-v3", "llama-bpe", "qwen2", "smollm", "gpt-2", "gpt-4o",
                           "tekken", "kimi-k2", "deepseek-llm", "deepseek-coder", "seed-coder"}) {
    const auto pretokenizer = Pretokenizer::create(name);
    ASSERT_TRUE(pretokenizer);
    for (const char* part :
         {" ", "\n", "a", "A", "aA", "Aa1", "1", "!", "\x01", "\u4e2d", "\u0301", " \n", "'"}) {
      std::string text;
      while (text.size() < 1u << 18) text += part;
      std::vector<std::uint32_t> lengths;
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_TRUE(pretokenizer->split(text, lengths)) << name << part;
      // This takes some 30 ms with sanitizers; a quadratic scan takes minutes.
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << name << part;
    }
  }
}

}  // namespace
}  // namespace sinew
