#include "engine/judgement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace sinew {
namespace {

using ::testing::HasSubstr;

// Relative errors around `size` with a tail of `flips` tokens whose expert is another one.
std::vector<float> errors(std::size_t count, float size, std::size_t flips, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> around(0.5F * size, 1.5F * size);
  std::uniform_real_distribution<float> flipped(0.1F, 0.8F);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(i < flips ? flipped(random) : around(random));
  std::shuffle(values.begin(), values.end(), random);
  return values;
}

TEST(Judge, EqualNoiseIsNoFault) {
  for (unsigned seed = 1; seed < 50; ++seed)
    EXPECT_FALSE(judge(errors(500, 0.01F, 0, seed), errors(500, 0.01F, 0, seed + 100), false));
}

TEST(Judge, LargerDifferenceOfMostTokensIsAFault) {
  const auto fault = judge(errors(500, 0.06F, 0, 1), errors(500, 0.01F, 0, 2), false);
  ASSERT_TRUE(fault);
  EXPECT_THAT(*fault, HasSubstr("half of the tokens"));
  EXPECT_TRUE(judge(errors(500, 0.06F, 20, 1), errors(500, 0.01F, 20, 2), true));
}

// 8 % of 500 tokens flip on average: between 4 % and 12 % do within four deviations.
TEST(Judge, MoreFlipsByChanceAreNoFault) {
  EXPECT_FALSE(judge(errors(500, 0.01F, 58, 1), errors(500, 0.01F, 40, 2), true));
  EXPECT_FALSE(judge(errors(32, 0.01F, 5, 1), errors(32, 0.01F, 0, 2), true));
}

TEST(Judge, FarMoreFlipsThanNoiseHasAreAFault) {
  EXPECT_TRUE(judge(errors(500, 0.01F, 200, 1), errors(500, 0.01F, 40, 2), true));
}

TEST(Judge, OneTokenIsAFaultWhereNoExpertCanFlip) {
  const auto fault = judge(errors(500, 0.01F, 1, 1), errors(500, 0.01F, 0, 2), false);
  ASSERT_TRUE(fault);
  EXPECT_THAT(*fault, HasSubstr("single tokens"));
}

TEST(Judge, WhatIsNoNumberIsAFault) {
  std::vector<float> broken = errors(100, 0.01F, 0, 1);
  broken[7] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(judge(broken, errors(100, 0.01F, 0, 2), true));
  EXPECT_TRUE(judge({}, {}, false));
}

TEST(RelativeErrors, FollowPositionsAndCountMissingOnes) {
  PlaceTrace reference{{1, 3, 5}, std::vector<float>(3 * kSketchRows, 2.0F)};
  PlaceTrace other{{1, 2, 3}, std::vector<float>(3 * kSketchRows, 2.0F)};
  for (int row = 0; row < kSketchRows; ++row)
    other.sketches[2 * kSketchRows + static_cast<std::size_t>(row)] = 3.0F;
  const std::vector<float> found = relative_errors(reference, other);
  EXPECT_EQ(found[0], 0.0F);
  EXPECT_FLOAT_EQ(found[1], 0.5F);
  EXPECT_TRUE(std::isinf(found[2]));
  other.sketches[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isinf(relative_errors(reference, other)[0]));
}

TEST(RelativeErrors, NothingAgainstSomethingIsInfinite) {
  const PlaceTrace nothing{{0}, std::vector<float>(kSketchRows, 0.0F)};
  const PlaceTrace something{{0}, std::vector<float>(kSketchRows, 1.0F)};
  EXPECT_EQ(relative_errors(nothing, nothing)[0], 0.0F);
  EXPECT_TRUE(std::isinf(relative_errors(nothing, something)[0]));
}

TEST(Logits, DivergenceIsThatOfTheDistributions) {
  // p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KL = 1/4 ln 2.
  const std::vector<float> p{std::log(2.0F), 0.0F, 0.0F};
  const std::vector<float> q{0.0F, std::log(2.0F), 0.0F};
  const LogitRow row = summarise(9, p);
  EXPECT_EQ(row.ids.front(), 0);
  EXPECT_NEAR(compare_logits(row, q).kl, 0.25 * std::log(2.0), 1e-6);
  EXPECT_NEAR(compare_logits(row, q).largest, std::log(2.0), 1e-6);
  EXPECT_EQ(compare_logits(row, p).kl, 0.0);
}

TEST(Logits, TokensBelowTheLargestCountTogether) {
  std::vector<float> p(1000, 0.0F);
  std::vector<float> q(1000, 0.0F);
  q[999] = 5.0F;
  EXPECT_GT(compare_logits(summarise(0, p), q).kl, 0.0);
}

TEST(Logits, NotANumberIsInfinitelyWrong) {
  const std::vector<float> p{1.0F, 2.0F, 3.0F};
  std::vector<float> q = p;
  q[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isinf(compare_logits(summarise(0, p), q).kl));
  EXPECT_EQ(summarise(0, q).ids.front(), 2);
}

}  // namespace
}  // namespace sinew
