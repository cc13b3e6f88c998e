#include "cluster/request_log.h"

#include <gtest/gtest.h>

namespace sinew {
namespace {

using namespace std::chrono_literals;

TEST(RequestLog, TokensGoOnInTheNextEpoch) {
  RequestLog log({});
  ASSERT_TRUE(log.epoch_started(0s, 3).empty());
  const auto begin = log.submit(0s, 1, {10, 11}, 5);
  ASSERT_TRUE(begin && *begin);
  ASSERT_TRUE(log.token(1s, 3, 1, 0, 100, false));
  ASSERT_TRUE(log.token(1s, 3, 1, 1, 101, false));
  log.epoch_ended(3);
  EXPECT_FALSE(log.token(1s, 3, 1, 2, 102, false)) << "the epoch is over";
  const auto again = log.epoch_started(2s, 4);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].epoch, 4U);
  EXPECT_EQ(again[0].prompt, (std::vector<TokenId>{10, 11}));
  EXPECT_EQ(again[0].tokens, (std::vector<TokenId>{100, 101}));
  EXPECT_FALSE(log.token(2s, 3, 1, 2, 102, false)) << "a rank of the old epoch";
  EXPECT_TRUE(log.token(2s, 4, 1, 2, 102, false));
}

TEST(RequestLog, ATokenIsDeliveredOnceAndInOrder) {
  RequestLog log({});
  log.epoch_started(0s, 1);
  ASSERT_TRUE(log.submit(0s, 1, {1}, 3));
  EXPECT_FALSE(log.token(0s, 1, 1, 1, 8, false)) << "one before it is missing";
  EXPECT_TRUE(log.token(0s, 1, 1, 0, 7, false));
  EXPECT_FALSE(log.token(0s, 1, 1, 0, 7, false)) << "delivered already";
}

TEST(RequestLog, EndsAtItsBudgetEvenIfTheHeadGoesOn) {
  RequestLog log({});
  log.epoch_started(0s, 1);
  ASSERT_TRUE(log.submit(0s, 1, {1}, 1));
  const auto delivery = log.token(0s, 1, 1, 0, 7, false);
  ASSERT_TRUE(delivery);
  EXPECT_TRUE(delivery->ended);
  EXPECT_EQ(log.size(), 0U);
}

TEST(RequestLog, AsksAgainAndGivesUpInTheEnd) {
  RequestLog log({});
  log.epoch_started(0s, 1);
  ASSERT_TRUE(log.submit(0s, 1, {1}, 9));
  EXPECT_TRUE(log.tick(2s).again.empty());
  EXPECT_EQ(log.tick(3s).again.size(), 1U);
  EXPECT_TRUE(log.tick(4s).again.empty());
  log.epoch_ended(1);
  const auto due = log.tick(30s);
  ASSERT_EQ(due.failed.size(), 1U);
  EXPECT_EQ(due.failed[0].status.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(log.size(), 0U);
}

TEST(RequestLog, OldEpochsDoNotStartAgain) {
  RequestLog log({});
  log.epoch_started(0s, 5);
  ASSERT_TRUE(log.submit(0s, 1, {1}, 9));
  EXPECT_TRUE(log.epoch_started(0s, 5).empty());
  EXPECT_TRUE(log.epoch_started(0s, 4).empty());
}

TEST(RequestLog, RefusesMoreThanItsBound) {
  RequestLog::Settings settings;
  settings.requests_max = 1;
  RequestLog log(settings);
  ASSERT_TRUE(log.submit(0s, 1, {1}, 9));
  EXPECT_FALSE(log.submit(0s, 2, {1}, 9));
  EXPECT_FALSE(log.submit(0s, 1, {1}, 9));
}

}  // namespace
}  // namespace sinew
