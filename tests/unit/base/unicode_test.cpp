#include "base/unicode.h"

#include <gtest/gtest.h>

namespace sinew {
namespace {

using Kind = Utf8Step::Kind;

TEST(Unicode, StepNamesTheMaximalSubpartOfAnInvalidSequence) {
  const auto step = [](std::string_view bytes) {
    const Utf8Step result = utf8_step(bytes);
    return std::pair(result.kind, result.length);
  };
  EXPECT_EQ(step("\xE4\xB8\xAD!"), std::pair(Kind::kValid, std::size_t{3}));
  EXPECT_EQ(step("\xF0\x9F\x91\xA9"), std::pair(Kind::kValid, std::size_t{4}));
  EXPECT_EQ(step("\xE4\xB8!"), std::pair(Kind::kInvalid, std::size_t{2}));
  EXPECT_EQ(step("\xE4\xB8"), std::pair(Kind::kIncomplete, std::size_t{2}));
  EXPECT_EQ(step("\x80"), std::pair(Kind::kInvalid, std::size_t{1}));
  EXPECT_EQ(step("\xC0\xAF"), std::pair(Kind::kInvalid, std::size_t{1}));
  EXPECT_EQ(step("\xED\xA0\x80"), std::pair(Kind::kInvalid, std::size_t{1}));
  EXPECT_EQ(step("\xF4\x90\x80\x80"), std::pair(Kind::kInvalid, std::size_t{1}));
  EXPECT_EQ(step("\xF0\x8F\xBF\xBF"), std::pair(Kind::kInvalid, std::size_t{1}));
}

TEST(Unicode, EveryCodePointThatIsWrittenIsValid) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    std::string text;
    append_utf8(text, c);
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    ASSERT_EQ(is_valid_utf8(text), !surrogate) << static_cast<int>(c);
  }
}

TEST(Unicode, LooseDecodingKeepsOverlongFormsAndSurrogates) {
  EXPECT_EQ(decode_loosely("\xC1\x81"), "A");
  EXPECT_EQ(decode_loosely("a\xFFz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(decode_loosely("\xE4\xB8"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(decode_loosely("\xF4\x90\x80\x80").size(), 12u);
  EXPECT_EQ(decode_loosely("\xED\xA0\x80"), "\xED\xA0\x80");
}

TEST(Unicode, BpeAlphabetGoesBothWaysForEveryByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(decode_bpe_text(encode_bpe_text(all)), all);
  EXPECT_EQ(encode_bpe_text(" a\n"), "\u0120a\u010A");
  EXPECT_EQ(decode_bpe_text("a b"), std::nullopt);
  EXPECT_EQ(decode_bpe_text("\u4e2d"), std::nullopt);
  EXPECT_EQ(decode_bpe_text("\xFF"), std::nullopt);
}

}  // namespace
}  // namespace sinew
