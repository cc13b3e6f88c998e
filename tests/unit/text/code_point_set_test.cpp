#include "text/code_point_set.h"

#include <gtest/gtest.h>

namespace sinew {
namespace {

TEST(CodePointSet, JoinsRangesThatTouchOrOverlap) {
  const CodePointSet set({{10, 20}, {0, 3}, {4, 5}, {15, 30}});
  ASSERT_EQ(set.ranges().size(), 2u);
  EXPECT_EQ(set.ranges()[0].last, 5u);
  EXPECT_EQ(set.ranges()[1].last, 30u);
  EXPECT_TRUE(set.contains(0));
  EXPECT_TRUE(set.contains(30));
  EXPECT_FALSE(set.contains(6));
  EXPECT_FALSE(set.contains(31));
}

TEST(CodePointSet, ComplementsAndIntersections) {
  const CodePointSet set({{0, 9}, {20, 0x10FFFF}});
  ASSERT_EQ(set.complement().ranges().size(), 1u);
  EXPECT_TRUE(set.complement().contains(10));
  EXPECT_TRUE(set.complement().contains(19));
  EXPECT_FALSE(set.complement().contains(20));
  const CodePointSet both = set.both(CodePointSet({{5, 25}}));
  ASSERT_EQ(both.ranges().size(), 2u);
  EXPECT_EQ(both.ranges()[0].first, 5u);
  EXPECT_EQ(both.ranges()[1].last, 25u);
  EXPECT_TRUE(CodePointSet().complement().complement().ranges().empty());
}

TEST(CodePointSet, KnowsUnicode15WhateverPcreKnows) {
  EXPECT_TRUE(code_points_with("Lu").contains(U'\u00c0'));
  EXPECT_TRUE(code_points_with("Ll").contains(U'\U0001DF25'));
  EXPECT_TRUE(code_points_with("Lm").contains(U'\U0001E4EB'));
  EXPECT_TRUE(code_points_with("Lo").contains(U'\U000323AF'));
  EXPECT_TRUE(code_points_with("Lt").contains(U'\u01c5'));
  EXPECT_TRUE(code_points_with("Han").contains(U'\u3007'));
  EXPECT_FALSE(code_points_with("Han").contains(U'\u3042'));
  // Common, and of Han by extension only.
  EXPECT_FALSE(code_points_with("Han").contains(U'\u3001'));
  EXPECT_FALSE(code_points_with("s").contains(U'\u180e'));
  EXPECT_TRUE(code_points_with("no such").ranges().empty());
}

TEST(CodePointSet, CategoriesOfLettersAreTheLettersAndOthersAreApart) {
  CodePointSet letters;
  for (const char* name : {"Lu", "Ll", "Lt", "Lm", "Lo"}) {
    EXPECT_TRUE(letters.both(code_points_with(name)).ranges().empty()) << name;
    letters = letters.with(code_points_with(name));
  }
  const CodePointSet& all = code_points_with("L");
  EXPECT_TRUE(all.both(letters.complement()).ranges().empty());
  EXPECT_TRUE(letters.both(all.complement()).ranges().empty());
  CodePointSet seen = all;
  for (const char* name : {"M", "N", "P", "S"}) {
    EXPECT_TRUE(seen.both(code_points_with(name)).ranges().empty()) << name;
    seen = seen.with(code_points_with(name));
  }
}

}  // namespace
}  // namespace sinew
