// The helpers that judge others are judged here: a helper that cannot fail proves nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "support/greedy_match.h"
#include "support/logits_program.h"
#include "support/process.h"

namespace sinew::test {
namespace {

TEST(RunProcess, ReturnsOutputsAndStatus) {
  const auto result =
      run_process({"/bin/sh", "-c", "cat; echo bad >&2; exit 3"}, "text", std::chrono::seconds(20));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->out, "text");
  EXPECT_EQ(result->err, "bad\n");
  EXPECT_EQ(result->exit_status, 3);
}

TEST(RunProcess, InputLargerThanAPipeIsMovedBothWays) {
  const std::string large(1 << 20, 'x');
  const auto result = run_process({"/bin/cat"}, large, std::chrono::seconds(20));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->out, large);
}

TEST(RunProcess, ChildThatNeverReadsItsInputIsNoFault) {
  const std::string large(1 << 20, 'x');
  const auto result = run_process({"/bin/true"}, large, std::chrono::seconds(20));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->exit_status, 0);
}

TEST(RunProcess, KillsTheWholeGroupAtItsDeadline) {
  const auto start = std::chrono::steady_clock::now();
  // The grandchild holds the outputs open, as a forgotten rank would.
  const auto result =
      run_process({"/bin/sh", "-c", "sleep 60 & wait"}, {}, std::chrono::seconds(1));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadline);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(RunProcess, NamesAProgramThatDoesNotExist) {
  const auto result = run_process({"/nonexistent/program"}, {}, std::chrono::seconds(5));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("/nonexistent/program"), std::string::npos);
}

TEST(KlDivergence, IsZeroForEqualAndKnownForTwoClasses) {
  const std::vector<float> a{0.0F, std::log(3.0F)};  // 1/4, 3/4
  const std::vector<float> b{0.0F, 0.0F};            // 1/2, 1/2
  EXPECT_EQ(kl_divergence(a, a), 0.0);
  EXPECT_NEAR(kl_divergence(a, b), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-6);
}

TEST(BestGap, IsTheDistanceToTheSecond) {
  const std::vector<float> logits{1.0F, 4.0F, 3.5F};
  EXPECT_EQ(arg_max(logits), 1U);
  EXPECT_DOUBLE_EQ(best_gap(logits), 0.5);
}

TEST(MatchGreedy, StopsAtTheFirstDifferenceAndExcusesOnlyNearTies) {
  const std::vector<GreedyToken> a{{5, 2.0}, {6, 0.01}, {7, 3.0}};
  const std::vector<GreedyToken> b{{5, 2.0}, {9, 0.01}, {8, 3.0}};
  const GreedyMatch match = match_greedy(a, b);
  EXPECT_EQ(match.differs_at, 1U);
  EXPECT_TRUE(match.excused(0.02));
  EXPECT_FALSE(match.excused(0.005));
  EXPECT_FALSE(match_greedy(a, a).excused(1.0));
}

TEST(MatchGreedy, ComparesNothingBehindTheEnd) {
  const std::vector<GreedyToken> a{{5, 2.0}, {1, 2.0}, {7, 3.0}};
  const std::vector<GreedyToken> b{{5, 2.0}, {1, 2.0}, {8, 3.0}};
  EXPECT_FALSE(match_greedy(a, b, 1).differs_at.has_value());
  EXPECT_EQ(match_greedy(a, b, 1).compared, 2U);
  EXPECT_EQ(match_greedy(a, b).differs_at, 2U);
}

}  // namespace
}  // namespace sinew::test
