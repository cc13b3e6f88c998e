// The cluster's core in the simulator: its invariants hold, and each of them can be broken.
#include "sim/world.h"

#include <gtest/gtest.h>

namespace sinew::sim {
namespace {

#ifdef SINEW_SLOW_BUILD
constexpr std::uint64_t kSeeds = 10;  // of each block
#else
constexpr std::uint64_t kSeeds = 100;
#endif

class Simulator : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Simulator, InvariantsHoldThroughFaultsAtOnce) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + kSeeds; ++seed) {
    const Outcome outcome = run({seed, Mutation::kNone, false});
    EXPECT_EQ(outcome.violation, "") << "replay: sim --seed " << seed << " --verbose";
    EXPECT_GE(outcome.faults_at_once, 2);
    EXPECT_GT(outcome.requests, 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Simulator, ::testing::Values(1, 101, 201, 301, 401));

TEST(SimulatorSelfTest, TheSameSeedGivesTheSameRun) {
  const Outcome a = run({7, Mutation::kNone, false});
  const Outcome b = run({7, Mutation::kNone, false});
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.elections, b.elections);
}

struct Broken {
  Mutation mutation;
  const char* said;  // part of what the violated invariant says
};
class BrokenProgram : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenProgram, IsCaughtByItsInvariant) {
  constexpr std::uint64_t kSeedsMax = 60;
  std::string last;
  for (std::uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    last = run({seed, GetParam().mutation, false}).violation;
    if (last.find(GetParam().said) != std::string::npos) return;
  }
  ADD_FAILURE() << mutation_name(GetParam().mutation) << " was not caught; last: " << last;
}
INSTANTIATE_TEST_SUITE_P(
    Mutations, BrokenProgram,
    ::testing::Values(Broken{Mutation::kLongLease, "coordinate at once"},
                      Broken{Mutation::kOldDisks, "two nodes coordinate in term"},
                      Broken{Mutation::kOldDisks, "means two things"},
                      Broken{Mutation::kForgetfulDisk, "goes back"},
                      Broken{Mutation::kSlowBurial, "ghost"},
                      Broken{Mutation::kRawTokens, "wrong, lost or doubled"},
                      Broken{Mutation::kLostRequest, "has not ended"},
                      Broken{Mutation::kServeAlone, "no contact with a majority"},
                      Broken{Mutation::kDeafNode, "not converged"}),
    [](const auto& one) { return "Case" + std::to_string(one.index); });

}  // namespace
}  // namespace sinew::sim
