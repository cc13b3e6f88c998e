// Many messages with random faults. tests/support/verbs_storm_program.cpp runs the same at any
// length.
#include <gtest/gtest.h>

#include "support/verbs_storm.h"

namespace sinew::testing {
namespace {

#ifdef SINEW_SLOW_BUILD
constexpr std::uint64_t kMessages = 20000;
#else
constexpr std::uint64_t kMessages = 100000;
#endif

TEST(VerbsStorm, RandomFaults_NeverGiveAWrongSumNorANamelessFailure) {
  for (const FakeStack stack : {FakeStack::kApple, FakeStack::kLinux}) {
    const StormReport report = storm(stack, 3, 2, kMessages, 11);
    EXPECT_EQ(report.problem, "");
    EXPECT_GE(report.messages, kMessages);
    EXPECT_GT(report.epochs, 1u) << "faults were injected";
  }
}

}  // namespace
}  // namespace sinew::testing
