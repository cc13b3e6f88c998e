// Many messages with random faults. tests/support/verbs_storm_program.cpp runs the same at any
// length.
#include <gtest/gtest.h>

#include "support/verbs_storm.h"

namespace sinew::testing {
namespace {

#ifdef SINEW_SLOW_BUILD
constexpr std::uint32_t kMessages = 20000;
#else
constexpr std::uint32_t kMessages = 100000;
#endif

TEST(VerbsStorm, RandomFaults_NeverGiveAWrongSumNorANamelessFailure) {
  FakeFaults faults;
  faults.seed = 11;
  // About twenty of each, however long the run.
  faults.loss = faults.corrupt = faults.duplicate = 20 * (1'000'000 / kMessages);
  faults.late = 2000;
  for (const FakeStack stack : {FakeStack::kApple, FakeStack::kLinux}) {
    const StormReport report = storm(stack, 3, 2, kMessages, faults);
    EXPECT_EQ(report.problem, "");
    EXPECT_GE(report.messages, kMessages);
    EXPECT_GT(report.epochs, 1u) << "faults were injected";
  }
}

}  // namespace
}  // namespace sinew::testing
