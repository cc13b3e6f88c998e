#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/limits.h"
#include "text/bpe.h"
#include "unit/text/tiny_vocabulary.h"

namespace sinew {
namespace {

using test::changed;
using test::TinyVocabulary;
using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer make(const TinyVocabulary& vocabulary = {}) {
  auto tokenizer = Tokenizer::from_metadata(vocabulary.metadata());
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                Tokenizer::EncodeOptions options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids);
  std::vector<std::string> result;
  for (const TokenId id : *ids) result.push_back(tokenizer.piece(id));
  return result;
}

std::string error_of(const Metadata& metadata, ErrorCode code) {
  const auto tokenizer = Tokenizer::from_metadata(metadata);
  EXPECT_FALSE(tokenizer);
  if (tokenizer) return "";
  EXPECT_EQ(tokenizer.error().code, code) << tokenizer.error().message;
  return tokenizer.error().message;
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const Tokenizer tokenizer = make();
  EXPECT_THAT(pieces(tokenizer, "aaaaa"), ElementsAre("aaaa", "a"));
  EXPECT_THAT(pieces(tokenizer, "aaa"), ElementsAre("aa", "a"));
  // "b c" has the lower rank, so "a b" is not possible any more.
  EXPECT_THAT(pieces(tokenizer, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(pieces(tokenizer, "the ab"), ElementsAre("the", " ", "ab"));
}

// The slow way: do the best merge of the whole word, again and again.
std::vector<TokenId> encode_slowly(const BpeMerges& merges, std::string_view word) {
  std::vector<TokenId> ids;
  for (const char c : word) ids.push_back(merges.byte_tokens[static_cast<std::uint8_t>(c)]);
  while (true) {
    std::optional<BpeMerges::Merge> best;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto merge = merges.find(ids[i], ids[i + 1]);
      if (merge && (!best || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (!best) return ids;
    ids[at] = best->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, GivesTheIdsOfTheSlowWayForRandomMerges) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    constexpr std::size_t kMerges = 40;
    BpeMerges merges(kMerges);
    for (int letter = 0; letter < 3; ++letter) {
      merges.byte_tokens[static_cast<std::size_t>('a' + letter)] = letter;
    }
    for (std::size_t i = 0; i < kMerges; ++i) {
      const auto known = static_cast<unsigned>(3 + i);
      merges.add(static_cast<TokenId>(random() % known), static_cast<TokenId>(random() % known),
                 {static_cast<std::uint32_t>(i), static_cast<TokenId>(known)});
    }
    BpeWord word(merges);
    for (int i = 0; i < 20; ++i) {
      std::string text(random() % 40, 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % 3);
      std::vector<TokenId> ids;
      word.encode(text, ids);
      ASSERT_EQ(ids, encode_slowly(merges, text)) << text;
    }
  }
}

TEST(Tokenizer, LongWordsTakeTimeInProportionToTheirLength) {
  const Tokenizer tokenizer = make();
  const auto begin = std::chrono::steady_clock::now();
  const auto ids = tokenizer.encode(std::string(1u << 20, 'a'), {});
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->size(), (1u << 20) / 4);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Tokenizer, PiecesOfValidTextAreTheText) {
  const Tokenizer tokenizer = make();
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (auto n = random() % 40; n > 0; --n) {
      char32_t c = random() % 2 == 0 ? 'a' + random() % 4 : random() % 0x10FFFF;
      if (c >= 0xD800 && c <= 0xDFFF) c = ' ';
      append_utf8(text, c);
    }
    std::string joined;
    for (const std::string& piece : pieces(tokenizer, text)) joined += piece;
    ASSERT_EQ(joined, text);
  }
}

TEST(Tokenizer, InvalidBytesBecomeReplacementCharacters) {
  const Tokenizer tokenizer = make();
  std::string joined;
  for (const std::string& piece : pieces(tokenizer, "a\xFF\xC1\x81")) joined += piece;
  EXPECT_EQ(joined,
            "a\xEF\xBF\xBD"
            "A");
}

TEST(Tokenizer, ControlTokensAreParsedOnRequestOnly) {
  const Tokenizer tokenizer = make();
  EXPECT_THAT(pieces(tokenizer, "a<|im_end|>a", {.parse_special = true}),
              ElementsAre("a", "<|im_end|>", "a"));
  EXPECT_GT(pieces(tokenizer, "<|im_end|>").size(), 1u);
}

TEST(Tokenizer, UserDefinedTokensAreAlwaysTokensAndTheLongestIsSearchedFirst) {
  const Tokenizer tokenizer = make();
  EXPECT_THAT(pieces(tokenizer, "<u>a<u><u><u>"), ElementsAre("<u>", "a", "<u><u>", "<u>"));
}

TEST(Tokenizer, AddsBosOnlyIfAskedAndTheFileWantsIt) {
  const TinyVocabulary vocabulary;
  const Metadata plain = vocabulary.metadata();
  const MetaValue bos = MetaScalar(std::uint64_t(vocabulary.first_special()));
  Metadata with_bos = changed(plain, "tokenizer.ggml.bos_token_id", bos);
  with_bos.insert("tokenizer.ggml.add_bos_token", MetaScalar(true));
  const auto tokenizer = Tokenizer::from_metadata(with_bos);
  ASSERT_TRUE(tokenizer);
  EXPECT_THAT(pieces(*tokenizer, "a", {.add_bos = true}), ElementsAre("<bos>", "a"));
  EXPECT_THAT(pieces(*tokenizer, "a"), ElementsAre("a"));
  EXPECT_THAT(pieces(make(), "a", {.add_bos = true}), ElementsAre("a"));
  // Vocabularies of Llama 3 want it where the file says nothing.
  TinyVocabulary llama;
  llama.pretokenizer = "llama-bpe";
  const auto silent =
      Tokenizer::from_metadata(changed(llama.metadata(), "tokenizer.ggml.bos_token_id", bos));
  ASSERT_TRUE(silent);
  EXPECT_THAT(pieces(*silent, "a", {.add_bos = true}), ElementsAre("<bos>", "a"));
}

TEST(Tokenizer, AddsEosOnlyIfAskedAndTheFileWantsIt) {
  Metadata metadata = changed(TinyVocabulary().metadata(), "tokenizer.ggml.eos_token_id",
                              MetaScalar(std::uint64_t{66}));
  metadata.insert("tokenizer.ggml.add_eos_token", MetaScalar(true));
  const auto tokenizer = Tokenizer::from_metadata(metadata);
  ASSERT_TRUE(tokenizer);
  EXPECT_THAT(pieces(*tokenizer, "a", {.add_bos = true}), ElementsAre("a", "B"));
  EXPECT_THAT(pieces(*tokenizer, "a"), ElementsAre("a"));
}

TEST(Tokenizer, KnowsTheEndsOfGeneration) {
  const TinyVocabulary vocabulary;
  const Metadata metadata =
      changed(vocabulary.metadata(), "tokenizer.ggml.eos_token_id", MetaScalar(std::uint64_t{65}));
  const auto tokenizer = Tokenizer::from_metadata(metadata);
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE(tokenizer->is_end_of_generation(65));
  EXPECT_TRUE(tokenizer->is_end_of_generation(*tokenizer->find("<|im_end|>")));
  EXPECT_FALSE(tokenizer->is_end_of_generation(66));
  EXPECT_FALSE(tokenizer->is_end_of_generation(-1));
  EXPECT_EQ(tokenizer->eos(), 65);
}

TEST(Tokenizer, MakesAControlTokenOfAnEndThatTheFileMarksAsText) {
  TinyVocabulary vocabulary;
  vocabulary.special = {{"<|endoftext|>", 1}};
  const Tokenizer tokenizer = make(vocabulary);
  const auto end = tokenizer.find("<|endoftext|>");
  ASSERT_TRUE(end);
  EXPECT_TRUE(tokenizer.is_control(*end));
  EXPECT_TRUE(tokenizer.is_end_of_generation(*end));
}

TEST(Tokenizer, FindsPiecesByTheirBytes) {
  const Tokenizer tokenizer = make();
  EXPECT_EQ(tokenizer.piece(*tokenizer.find(" a")), " a");
  EXPECT_EQ(tokenizer.find("<bos>"), TinyVocabulary().first_special());
  EXPECT_EQ(tokenizer.find("nowhere"), std::nullopt);
  EXPECT_EQ(tokenizer.piece(-1), "");
  EXPECT_EQ(tokenizer.piece(tokenizer.vocabulary_size()), "");
}

TEST(Tokenizer, RefusesATextThatIsTooLong) {
  const auto ids = make().encode(std::string(kTextBytesMax + 1, 'a'), {});
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidRequest);
}

TEST(Tokenizer, RefusesVocabulariesThatContradictThemselves) {
  const TinyVocabulary tiny;
  const Metadata good = tiny.metadata();
  TinyVocabulary twice;
  twice.special.push_back({"<bos>", 3});
  EXPECT_THAT(error_of(twice.metadata(), ErrorCode::kInvalidFile), HasSubstr("are the same"));
  MetaArray merges = std::get<MetaArray>(*good.find("tokenizer.ggml.merges"));
  merges.strings[0] = "zz a";
  EXPECT_THAT(error_of(changed(good, "tokenizer.ggml.merges", merges), ErrorCode::kInvalidFile),
              HasSubstr("merge 0 names a token"));
  merges.strings[0] = "zz";
  EXPECT_THAT(error_of(changed(good, "tokenizer.ggml.merges", merges), ErrorCode::kInvalidFile),
              HasSubstr("merge 0 is not"));
  MetaArray types = std::get<MetaArray>(*good.find("tokenizer.ggml.token_type"));
  types.signed_integers.pop_back();
  --types.size;
  EXPECT_THAT(error_of(changed(good, "tokenizer.ggml.token_type", types), ErrorCode::kInvalidFile),
              HasSubstr("token types"));
  EXPECT_THAT(
      error_of(changed(good, "tokenizer.ggml.eos_token_id", MetaScalar(std::uint64_t{100000})),
               ErrorCode::kInvalidFile),
      HasSubstr("outside of the vocabulary"));
  EXPECT_THAT(error_of(changed(good, "tokenizer.ggml.add_bos_token", MetaScalar(true)),
                       ErrorCode::kInvalidFile),
              HasSubstr("no bos_token_id"));
  EXPECT_THAT(error_of(changed(good, "tokenizer.ggml.add_eos_token", MetaScalar(true)),
                       ErrorCode::kInvalidFile),
              HasSubstr("no eos_token_id"));
}

TEST(Tokenizer, RefusesOtherKindsOfTokenizers) {
  const Metadata good = TinyVocabulary().metadata();
  EXPECT_THAT(error_of(changed(good, "tokenizer.ggml.model", MetaScalar(std::string("t5"))),
                       ErrorCode::kUnsupported),
              HasSubstr("'t5' is not implemented; supported: gpt2"));
  EXPECT_THAT(error_of(changed(good, "tokenizer.ggml.pre", std::nullopt), ErrorCode::kUnsupported),
              HasSubstr("supported: deepseek-v3"));
}

}  // namespace
}  // namespace sinew
