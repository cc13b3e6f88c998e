#include "engine/recovery.h"

#include <gtest/gtest.h>

namespace sinew {
namespace {

using std::chrono::milliseconds;

const RecoveryPolicy::Clock::time_point kStart{};

TEST(RecoveryPolicy, WithoutTime_MendsNothing) {
  RecoveryPolicy policy{milliseconds(0)};
  EXPECT_FALSE(policy.lost(kStart));
}

TEST(RecoveryPolicy, LossesWithTokensBetween_AreMendedForEver) {
  RecoveryPolicy policy{milliseconds(100)};
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(policy.lost(kStart + milliseconds(1000) * i)) << i;
    policy.mended();
    policy.progressed();
  }
}

TEST(RecoveryPolicy, LossesWithoutATokenBetween_AreGivenUp) {
  RecoveryPolicy policy{milliseconds(100)};
  for (int i = 0; i < RecoveryPolicy::kLossesMax; ++i) {
    EXPECT_TRUE(policy.lost(kStart + milliseconds(1000) * i)) << i;
    policy.mended();
  }
  EXPECT_FALSE(policy.lost(kStart + milliseconds(100000)));
}

TEST(RecoveryPolicy, TimeCountsFromTheFirstLossUntilAllIsMended) {
  RecoveryPolicy policy{milliseconds(100)};
  ASSERT_TRUE(policy.lost(kStart));
  EXPECT_FALSE(policy.late(kStart + milliseconds(99)));
  EXPECT_TRUE(policy.late(kStart + milliseconds(100)));
  ASSERT_TRUE(policy.lost(kStart + milliseconds(90))) << "a second rank, while the first is mended";
  EXPECT_TRUE(policy.late(kStart + milliseconds(100))) << "a loss gets no time of its own";
  policy.mended();
  EXPECT_FALSE(policy.late(kStart + milliseconds(500)));
  ASSERT_TRUE(policy.lost(kStart + milliseconds(600)));
  EXPECT_FALSE(policy.late(kStart + milliseconds(650)));
}

TEST(RecoveryPolicy, LossAfterTheTime_IsGivenUp) {
  RecoveryPolicy policy{milliseconds(100)};
  ASSERT_TRUE(policy.lost(kStart));
  EXPECT_FALSE(policy.lost(kStart + milliseconds(200)));
}

}  // namespace
}  // namespace sinew
