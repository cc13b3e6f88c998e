// What the program does when a rank, the supervisor or the user stops in the middle of an answer,
// where a lost rank is not to be started again.
// Each test kills or stops a process that computes, and asks: was the right rank named in time, and
// is nothing left?
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/live_program.h"

namespace sinew::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 4;
constexpr milliseconds kStartLimit{20000};
// What a user is promised: from the fault to the end of the program. Sanitizers slow the program,
// not the promise.
#ifdef SINEW_SLOW_BUILD
constexpr milliseconds kPromise{10000};
constexpr milliseconds kGoneMax{5000};  // until what was killed is gone
#else
constexpr milliseconds kPromise{3000};
constexpr milliseconds kGoneMax{1000};
#endif

std::vector<std::string> modes() {
  std::vector<std::string> all = link_kinds();
  all.emplace_back("stages");
  return all;
}

// `mode`: a kind of link, or "stages": two pipeline stages of two ranks.
std::vector<std::string> long_answer(const std::string& mode) {
  const bool staged = mode == "stages";
  return {SINEW_PROGRAM,
          "run",
          SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf",
          "Tell me a story about a fox.",
          "--ranks",
          std::to_string(kRanks),
          "--stages",
          staged ? "2,2" : std::to_string(kRanks),
          "--link",
          staged ? "shm" : mode,
          "--temp",
          "1",
          "--seed",
          "1",
          "--ignore-eos",
          "-n",
          "100000",
          "--recover",
          "0",
          "--verbose"};
}

// The ranks compute and the first words are out.
bool is_answering(LiveProgram& program) {
  return program.wait_until(
      [&] { return program.ranks().size() == kRanks && program.out().size() > 16; }, kStartLimit);
}

// The lines of standard error that say what went wrong: all that do not tell pids.
std::string complaints(const std::string& err) {
  static const std::regex fault(
      "(^|\n)[^\n]*(error|lost|stopped|killed|died|signal|silent|late)[^\n]*");
  std::string text;
  for (std::sregex_iterator it(err.begin(), err.end(), fault), end; it != end; ++it)
    text += it->str();
  return text;
}

// What must be true of the machine after the program has ended, however it ended.
void expect_nothing_left(const LiveProgram& program, const Footprint& footprint) {
  EXPECT_EQ(footprint.left_after(kGoneMax), "") << program.err();
}

struct Fault {
  const char* name;
  int signal;
  const char* cause;  // what the message must say of it
};
constexpr Fault kFaults[] = {
    {"Kill", SIGKILL, "kill|signal 9|died"},
    {"Stop", SIGSTOP, "stopped|suspended"},
};

class RankFault : public ::testing::TestWithParam<std::tuple<std::string, int, int>> {};

TEST_P(RankFault, IsNamedInTimeAndNothingIsLeft) {
  const auto& [mode, fault_index, rank] = GetParam();
  const Fault& fault = kFaults[fault_index];
  LiveProgram program(long_answer(mode));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const Footprint footprint = program.footprint();
  const pid_t victim = program.ranks().at(rank);
  ASSERT_TRUE(footprint.processes.contains(victim))
      << "rank " << rank << " is no child of the program";

  const std::size_t before = program.err().size();
  ASSERT_EQ(kill(victim, fault.signal), 0);
  const auto status = program.wait_for_exit(kPromise);

  ASSERT_TRUE(status) << "still running " << kPromise.count() << " ms after the fault";
  EXPECT_NE(*status, 0);
  EXPECT_LT(*status, 128) << "the program itself was ended by a signal";
  const std::string said = complaints(program.err().substr(before));
  EXPECT_NE(said.find("rank " + std::to_string(rank)), std::string::npos) << program.err();
  EXPECT_TRUE(std::regex_search(said, std::regex(fault.cause))) << program.err();
  for (int other = 0; other < kRanks; ++other) {
    if (other == rank) continue;
    EXPECT_EQ(said.find("rank " + std::to_string(other) + " "), std::string::npos)
        << "a healthy rank is blamed: " << program.err();
  }
  expect_nothing_left(program, footprint);
}

INSTANTIATE_TEST_SUITE_P(Cluster, RankFault,
                         ::testing::Combine(::testing::ValuesIn(modes()), ::testing::Range(0, 2),
                                            ::testing::Range(0, kRanks)),
                         [](const auto& given) {
                           return std::get<0>(given.param) +
                                  kFaults[std::get<1>(given.param)].name +
                                  std::to_string(std::get<2>(given.param));
                         });

class ProgramFault : public ::testing::TestWithParam<std::string> {};

TEST_P(ProgramFault, KilledSupervisorTakesItsRanksAlong) {
  LiveProgram program(long_answer(GetParam()));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const Footprint footprint = program.footprint();
  ASSERT_GE(footprint.processes.size(), static_cast<std::size_t>(kRanks));
  kill(program.pid(), SIGKILL);
  EXPECT_EQ(program.wait_for_exit(milliseconds(1000)), 128 + SIGKILL);
  EXPECT_TRUE(left_after(footprint.processes, kPromise).empty());
  expect_nothing_left(program, footprint);
}

// A stopped rank cannot notice anything by itself: the system has to end it.
TEST_P(ProgramFault, KilledSupervisorTakesAStoppedRankAlong) {
  LiveProgram program(long_answer(GetParam()));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const std::set<pid_t> processes = program.descendants();
  kill(program.ranks().at(1), SIGSTOP);
  kill(program.pid(), SIGKILL);
  EXPECT_TRUE(left_after(processes, kPromise).empty());
}

TEST_P(ProgramFault, InterruptEndsTheAnswerAndLeavesNothing) {
  LiveProgram program(long_answer(GetParam()));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const Footprint footprint = program.footprint();
  // A terminal sends the signal to the whole group, as here.
  kill(-program.pid(), SIGINT);
  const auto status = program.wait_for_exit(kPromise);
  ASSERT_TRUE(status) << program.err();
  EXPECT_EQ(*status, 130) << program.err();
  expect_nothing_left(program, footprint);
}

TEST_P(ProgramFault, TerminateEndsTheProgramAndLeavesNothing) {
  LiveProgram program(long_answer(GetParam()));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const Footprint footprint = program.footprint();
  kill(program.pid(), SIGTERM);
  ASSERT_TRUE(program.wait_for_exit(kPromise)) << program.err();
  expect_nothing_left(program, footprint);
}

// A pause shorter than the suspect limit is a slow machine, not a fault.
TEST_P(ProgramFault, ShortPauseOfARankChangesNothing) {
  LiveProgram program(long_answer(GetParam()));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const pid_t victim = program.ranks().at(2);
  kill(victim, SIGSTOP);
  program.wait_until([] { return false; }, milliseconds(300));
  kill(victim, SIGCONT);
  const std::size_t before = program.out().size();
  EXPECT_TRUE(program.wait_until([&] { return program.out().size() > before + 16; }, kPromise))
      << program.err();
  EXPECT_EQ(complaints(program.err()), "");
}

INSTANTIATE_TEST_SUITE_P(Cluster, ProgramFault, ::testing::ValuesIn(modes()),
                         [](const auto& given) { return given.param; });

}  // namespace
}  // namespace sinew::test
