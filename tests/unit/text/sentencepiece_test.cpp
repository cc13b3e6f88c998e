#include "text/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>

#include "text/tokenizer.h"
#include "unit/text/tiny_vocabulary.h"

namespace sinew {
namespace {

using test::changed;
using test::TinyPieces;
using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer make(const Metadata& metadata = TinyPieces().metadata()) {
  auto tokenizer = Tokenizer::from_metadata(metadata);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

Metadata without_space(const Metadata& metadata = TinyPieces().metadata()) {
  return changed(metadata, "tokenizer.ggml.add_space_prefix", MetaScalar(false));
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                Tokenizer::EncodeOptions options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids);
  std::vector<std::string> result;
  for (const TokenId id : *ids) result.push_back(tokenizer.piece(id));
  return result;
}

std::string joined(const Tokenizer& tokenizer, std::string_view text) {
  std::string result;
  for (const std::string& piece : pieces(tokenizer, text)) result += piece;
  return result;
}

void expect_refused(const Metadata& metadata, std::string_view words) {
  const auto tokenizer = Tokenizer::from_metadata(metadata);
  ASSERT_FALSE(tokenizer) << words;
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kInvalidFile);
  EXPECT_THAT(tokenizer.error().message, HasSubstr(std::string(words)));
}

TEST(SentencePiece, MergesTheHighestScoreFirstThenFromTheLeft) {
  const Tokenizer tokenizer = make(without_space());
  EXPECT_THAT(pieces(tokenizer, "abc"), ElementsAre("ab", "c"));
  // "th" has a higher score than " t", and so "he" and " the" are out of reach.
  EXPECT_THAT(pieces(tokenizer, " the"), ElementsAre(" ", "th", "e"));
  EXPECT_THAT(pieces(tokenizer, "heb"), ElementsAre("he", "b"));
}

// SentencePiece as it is described: over the whole text, by the texts of the pieces.
std::vector<TokenId> encode_slowly(const TinyPieces& vocabulary, std::string_view text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.push_back(c == ' ' ? "\u2581" : std::string(1, c));
  const auto rank = [&](const std::string& piece) {
    const auto place = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), piece);
    return place - vocabulary.pieces.begin();
  };
  const auto none = static_cast<std::ptrdiff_t>(vocabulary.pieces.size());
  while (true) {
    std::ptrdiff_t best = none;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::ptrdiff_t found = rank(symbols[i] + symbols[i + 1]);
      if (found < best) {
        best = found;
        at = i;
      }
    }
    if (best == none) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) {
    if (rank(symbol) < none) {
      ids.push_back(static_cast<TokenId>(TinyPieces::kFirstPiece + rank(symbol)));
      continue;
    }
    for (const char c : symbol)
      ids.push_back(TinyPieces::kFirstByte + static_cast<std::uint8_t>(c));
  }
  return ids;
}

// Also pieces of characters that are no pieces themselves, and with spaces inside and at the end.
TEST(SentencePiece, GivesTheIdsOfTheSlowWayForRandomPieces) {
  constexpr unsigned kSeed = 17;
  std::mt19937 random(kSeed);
  const std::vector<std::string> characters{"a", "b", "c", "\u2581"};
  for (int round = 0; round < 200; ++round) {
    TinyPieces vocabulary;
    vocabulary.special.clear();
    vocabulary.pieces = {"a", "b"};
    if (round % 2 == 0) vocabulary.pieces.emplace_back("\u2581");
    while (vocabulary.pieces.size() < 24) {
      std::string piece;
      for (auto length = 2 + random() % 4; length > 0; --length) piece += characters[random() % 4];
      if (std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), piece) ==
          vocabulary.pieces.end()) {
        vocabulary.pieces.push_back(piece);
      }
    }
    std::shuffle(vocabulary.pieces.begin(), vocabulary.pieces.end(), random);
    const Tokenizer tokenizer = make(without_space(vocabulary.metadata()));
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (auto length = random() % 60; length > 0; --length) text += "abc "[random() % 4];
      const auto ids = tokenizer.encode(text, {});
      ASSERT_TRUE(ids);
      ASSERT_EQ(*ids, encode_slowly(vocabulary, text)) << text;
    }
  }
}

TEST(SentencePiece, AnyBytesComeBack) {
  const Tokenizer tokenizer = make(without_space());
  EXPECT_THAT(pieces(tokenizer, "\u00e9\u00e8"), ElementsAre("\u00e9", "\xC3", "\xA8"));
  // A stray byte takes nothing of what follows it.
  EXPECT_THAT(pieces(tokenizer, "\xFE ab"), ElementsAre("\xFE", " ", "ab"));
  constexpr unsigned kSeed = 19;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 60, ' ');
    for (char& c : text)
      c = static_cast<char>(random() % 3 == 0 ? random() : "abthe <"[random() % 7]);
    if (text.find("<u>") != text.npos || text.find("\u2581") != text.npos) continue;
    ASSERT_EQ(joined(tokenizer, text), text);
    ASSERT_EQ(joined(make(), text), text.empty() ? "" : ' ' + text);
  }
}

TEST(SentencePiece, PutsASpaceBeforeTextAtTheBeginningAndAfterSpecialTokens) {
  const Tokenizer with = make();
  const Tokenizer::EncodeOptions special{.parse_special = true};
  EXPECT_THAT(pieces(with, "a"), ElementsAre(" ", "a"));
  EXPECT_THAT(pieces(with, "a<mark>a", special), ElementsAre(" ", "a", "<mark>", " ", "a"));
  EXPECT_THAT(pieces(with, ""), ElementsAre());
  EXPECT_THAT(pieces(make(without_space()), "a<mark>a", special), ElementsAre("a", "<mark>", "a"));
}

TEST(SentencePiece, ControlTokensCannotBeSpelledInPlainText) {
  const Tokenizer tokenizer = make(without_space());
  // "<s" and ">" are pieces, but together they are no piece.
  EXPECT_THAT(pieces(tokenizer, "<s>"), ElementsAre("<s", ">"));
  EXPECT_THAT(pieces(tokenizer, "</s>"), ElementsAre("</s", ">"));
  EXPECT_THAT(pieces(tokenizer, "<s>", {.parse_special = true}), ElementsAre("<s>"));
  EXPECT_THAT(pieces(tokenizer, "a<u>a"), ElementsAre("a", "<u>", "a"));
}

TEST(SentencePiece, AddsTheBosOfSentencePieceUnlessTheFileSaysOtherwise) {
  EXPECT_THAT(pieces(make(), "a", {.add_bos = true}), ElementsAre("<s>", " ", "a"));
  const Tokenizer tokenizer = make();
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_TRUE(tokenizer.is_end_of_generation(2));
  Metadata other =
      changed(TinyPieces().metadata(), "tokenizer.ggml.add_bos_token", MetaScalar(false));
  other.insert("tokenizer.ggml.add_eos_token", MetaScalar(true));
  EXPECT_THAT(pieces(make(other), "a", {.add_bos = true}), ElementsAre(" ", "a", "</s>"));
}

TEST(SentencePiece, FindsPiecesByTheirTextAndBytesLast) {
  const Tokenizer tokenizer = make();
  EXPECT_EQ(tokenizer.find("a"), TinyPieces::kFirstPiece + 7);
  EXPECT_EQ(tokenizer.find(" the"), TinyPieces::kFirstPiece);
  EXPECT_EQ(tokenizer.find("\n"), TinyPieces::kFirstByte + '\n');
  EXPECT_EQ(tokenizer.find("</s>"), 2);
}

TEST(SentencePiece, RefusesWrongScoresAndMissingBytes) {
  const Metadata good = TinyPieces().metadata();
  const std::string key = "tokenizer.ggml.scores";
  expect_refused(changed(good, key, std::nullopt), key);
  MetaArray scores = std::get<MetaArray>(*good.find(key));
  scores.reals[260] = std::nan("");
  expect_refused(changed(good, key, scores), "the score of token");
  scores.reals.pop_back();
  --scores.size;
  expect_refused(changed(good, key, scores), "scores for");
  MetaArray tokens = std::get<MetaArray>(*good.find("tokenizer.ggml.tokens"));
  tokens.strings[TinyPieces::kFirstByte + 0x41] = "other";
  expect_refused(changed(good, "tokenizer.ggml.tokens", tokens), "no byte token <0x41>");
  tokens = std::get<MetaArray>(*good.find("tokenizer.ggml.tokens"));
  tokens.strings.back() = std::string(100000, 'x');
  MetaArray types = std::get<MetaArray>(*good.find("tokenizer.ggml.token_type"));
  types.signed_integers.back() = 1;
  expect_refused(
      changed(changed(good, "tokenizer.ggml.tokens", tokens), "tokenizer.ggml.token_type", types),
      "has 100000 bytes");
}

TEST(SentencePiece, LongTextsWithoutSpacesTakeTimeInProportionToTheirLength) {
  const Tokenizer tokenizer = make();
  for (const char* part : {"a", "th", " ", "\u00e9", "\u00e8", "\xFF"}) {
    std::string text;
    while (text.size() < 1u << 20) text += part;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(joined(tokenizer, text), ' ' + text);
    // Some 0.5 s with sanitizers; a quadratic way takes hours.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << part;
  }
}

TEST(SentencePiece, Gemma4MergesByPairsAndCutsAtLineFeeds) {
  TinyPieces vocabulary;
  vocabulary.pieces.emplace_back("\n\n");
  Metadata metadata = changed(vocabulary.metadata(), "tokenizer.ggml.scores", std::nullopt);
  metadata = changed(metadata, "tokenizer.ggml.model", MetaScalar(std::string("gemma4")));
  MetaArray merges;
  merges.strings = {"h e", "t he", "\u2581 t", "\u2581t he"};
  merges.size = merges.strings.size();
  merges.element_type = test::TinyVocabulary::kString;
  expect_refused(changed(metadata, "tokenizer.ggml.merges", merges), "merge 1 names a token");
  merges.strings[1] = "t h";
  metadata = changed(metadata, "tokenizer.ggml.merges", merges);
  metadata.insert("tokenizer.ggml.bos_token_id", MetaScalar(std::uint64_t{1}));
  metadata.insert("tokenizer.ggml.add_bos_token", MetaScalar(false));
  const Tokenizer tokenizer = make(metadata);
  EXPECT_THAT(pieces(tokenizer, " the\n\nab\n", {.add_bos = true}),
              ElementsAre("<s>", " the", "\n\n", "a", "b", "\n"));
}

}  // namespace
}  // namespace sinew
