#include "text/character_classes.h"

#include <gtest/gtest.h>

#include "base/unicode.h"

namespace sinew {
namespace {

std::string bytes_of(const CharacterClasses& classes, std::string_view text) {
  std::string bytes;
  classes.to_bytes(text, bytes);
  return bytes;
}

TEST(CharacterClasses, AsciiStaysAndEqualCharactersBecomeOneByte) {
  constexpr std::array<std::string_view, 1> kExpressions{R"(\p{L}+|[^\s\p{N}])"};
  const CharacterClasses classes(kExpressions);
  EXPECT_EQ(bytes_of(classes, "a 1\n"), "a 1\n");
  const std::string bytes = bytes_of(classes, "\u00e9\u4e2d\u00a0\u0661\U0001F600\u3042");
  ASSERT_EQ(bytes.size(), 6u);
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_EQ(bytes[0], bytes[5]);
  for (const std::size_t other : {2u, 3u, 4u}) EXPECT_NE(bytes[0], bytes[other]) << other;
  // Neither is a letter or taken by the second class: the expression cannot tell them apart.
  EXPECT_EQ(bytes[2], bytes[3]);
  EXPECT_GE(static_cast<std::uint8_t>(bytes[4]), 0x80);
}

TEST(CharacterClasses, RewritesClassesAndLeavesTheRest) {
  constexpr std::array<std::string_view, 1> kExpressions{R"(([0-9]{1,3}|\.)(?!x))"};
  EXPECT_EQ(CharacterClasses(kExpressions).to_bytes(kExpressions[0]),
            R"(([\x30-\x39]{1,3}|\.)(?!x))");
}

TEST(CharacterClasses, TakeOneClassOutOfAnother) {
  constexpr std::array<std::string_view, 1> kExpressions{R"([a-z\p{Lo}&&[^\p{Han}d-f]])"};
  const CharacterClasses classes(kExpressions);
  const std::string expression = classes.to_bytes(kExpressions[0]);
  EXPECT_TRUE(expression.starts_with(R"([\x61-\x63\x67-\x7A)")) << expression;
  EXPECT_NE(bytes_of(classes, "\u3042"), bytes_of(classes, "\u4e2d"));
}

TEST(CharacterClasses, GiveOneByteForEveryCodePointAlsoForSurrogates) {
  constexpr std::array<std::string_view, 2> kExpressions{R"([\p{Lu}\p{M}])",
                                                         R"([\x{3000}-\x{10000}])"};
  const CharacterClasses classes(kExpressions);
  for (char32_t c = 0; c <= 0x10FFFF; c += 7) {
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(bytes_of(classes, text).size(), 1u) << static_cast<int>(c);
  }
}

}  // namespace
}  // namespace sinew
