// A request outlives the loss of a rank: the answer is the one of an undisturbed run, byte by byte.
// Each test kills or stops a rank that computes and compares the text with that of a run that
// nobody touched.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/live_program.h"

namespace sinew::test {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr milliseconds kStartLimit{20000};
// From the loss to the end of the answer. A test that waits this long has found a hang.
constexpr milliseconds kAnswerLimit{60000};
constexpr milliseconds kPromise{10000};
constexpr milliseconds kGoneMax{5000};
constexpr const char* kModel = SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf";

constexpr const char* kEndless = "100000";

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments all, const Arguments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const Arguments kGreedy{};
const Arguments kSampled{"--temp", "1", "--seed", "3", "--repeat-penalty", "1.2"};

// `mode`: a kind of link, or "stages": two pipeline stages of two ranks.
Arguments answer(const std::string& mode, const Arguments& sampling,
                 const std::string& model = kModel, const std::string& tokens = "300") {
  const bool staged = mode == "stages";
  return Arguments{SINEW_PROGRAM,  "run",
                   model,          "Tell me a story about a fox.",
                   "--ranks",      std::to_string(kRanks),
                   "--stages",     staged ? "2,2" : std::to_string(kRanks),
                   "--link",       staged ? "shm" : mode,
                   "--ignore-eos", "-n",
                   tokens,         "--recover-exactly",
                   "--verbose"} +
         sampling;
}

// What the command says if nobody disturbs it.
const std::string& undisturbed(const Arguments& arguments) {
  static std::map<Arguments, std::string> known;
  std::string& text = known[arguments];
  if (text.empty()) {
    LiveProgram program(arguments);
    EXPECT_EQ(program.wait_for_exit(kAnswerLimit), 0) << program.err();
    text = program.out();
    EXPECT_FALSE(text.empty());
  }
  return text;
}

bool is_answering(LiveProgram& program) {
  return program.wait_until(
      [&] { return program.ranks().size() == kRanks && program.out().size() > 40; }, kStartLimit);
}

bool says(LiveProgram& program, const std::string& what, milliseconds limit = kAnswerLimit) {
  return program.wait_until([&] { return program.err().find(what) != std::string::npos; }, limit);
}

struct Loss {
  std::string rank;
  std::string epoch;
  double mib_read = 0;
  int tokens = 0;  // of the answer, when it went on
};
// From the lines that tell of losses that were mended in the middle of an answer.
std::vector<Loss> mended(const std::string& err) {
  static const std::regex lost(R"(: rank (\d+) [^\n]*started again for epoch (\d+))");
  static const std::regex serves(R"(serves, [^\n]* ([\d.]+) MiB of )");
  static const std::regex goes_on(R"(goes on after (\d+) tokens)");
  std::vector<Loss> losses;
  std::sregex_iterator first(err.begin(), err.end(), lost);
  std::sregex_iterator second(err.begin(), err.end(), serves);
  std::sregex_iterator third(err.begin(), err.end(), goes_on);
  const std::sregex_iterator end;
  for (; first != end && second != end && third != end; ++first, ++second, ++third)
    losses.push_back({(*first)[1], (*first)[2], std::stod((*second)[1]), std::stoi((*third)[1])});
  EXPECT_TRUE(first == end && second == end && third == end) << err;
  return losses;
}

void expect_same_answer(LiveProgram& program, const std::string& text) {
  EXPECT_EQ(program.wait_for_exit(kAnswerLimit), 0) << program.err();
  EXPECT_EQ(program.out(), text) << program.err();
}

std::vector<std::string> modes() {
  std::vector<std::string> all = link_kinds();
  all.emplace_back("stages");
  return all;
}

class LostRank : public ::testing::TestWithParam<std::tuple<std::string, int, int>> {};

TEST_P(LostRank, AnswerGoesOnAsIfNothingHadBeen) {
  const auto& [mode, signal, rank] = GetParam();
  const Arguments command = answer(mode, rank % 2 == 0 ? kSampled : kGreedy);
  const std::string& text = undisturbed(command);
  LiveProgram program(command);
  ASSERT_TRUE(is_answering(program)) << program.err();
  const Footprint before = program.footprint();
  ASSERT_EQ(kill(program.ranks().at(rank), signal), 0);
  expect_same_answer(program, text);
  const std::vector<Loss> losses = mended(program.err());
  ASSERT_EQ(losses.size(), 1u) << program.err();
  EXPECT_EQ(losses[0].rank, std::to_string(rank));
  EXPECT_EQ(losses[0].epoch, "2");
  EXPECT_GT(losses[0].tokens, 3);
  EXPECT_EQ(before.left_after(kGoneMax), "");
}

INSTANTIATE_TEST_SUITE_P(Cluster, LostRank,
                         ::testing::Combine(::testing::ValuesIn(modes()),
                                            ::testing::Values(SIGKILL, SIGSTOP),
                                            ::testing::Range(0, kRanks)),
                         [](const auto& given) {
                           return std::get<0>(given.param) +
                                  (std::get<1>(given.param) == SIGKILL ? "Kill" : "Stop") +
                                  std::to_string(std::get<2>(given.param));
                         });

TEST(Recovery, SurvivorsKeepTheirWeights) {
  LiveProgram program(answer("shm", kGreedy));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const std::map<int, pid_t> before = program.ranks();
  kill(before.at(2), SIGKILL);
  ASSERT_EQ(program.wait_for_exit(kAnswerLimit), 0) << program.err();
  const std::map<int, pid_t> after = program.ranks();
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(before.at(rank) == after.at(rank), rank != 2) << rank;
  // One rank of four holds less than half of the model's 7 MB.
  const std::vector<Loss> losses = mended(program.err());
  ASSERT_EQ(losses.size(), 1u) << program.err();
  EXPECT_GT(losses[0].mib_read, 0.1);
  EXPECT_LT(losses[0].mib_read, 3.5);
}

TEST(Recovery, KilledDuringPrefill_TheAnswerIsTheSame) {
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += "The fox number " + std::to_string(i) + " ran away. ";
  Arguments command = answer("shm", kSampled);
  command[3] = prompt;
  command = command + Arguments{"--chunk", "4", "--raw", "--ctx", "8192"};
  const std::string& text = undisturbed(command);
  LiveProgram program(command);
  ASSERT_TRUE(program.wait_until([&] { return program.ranks().size() == kRanks; }, kStartLimit));
  kill(program.ranks().at(1), SIGKILL);
  const bool nothing_said = program.out().empty();
  expect_same_answer(program, text);
  EXPECT_TRUE(nothing_said) << "the prompt is too short for this machine";
  EXPECT_NE(program.err().find("epoch 2 serves"), std::string::npos) << program.err();
}

TEST(Recovery, KilledTwice_TheAnswerIsTheSame) {
  const Arguments command = answer("tcp", kSampled);
  const std::string& text = undisturbed(command);
  LiveProgram program(command);
  ASSERT_TRUE(is_answering(program)) << program.err();
  kill(program.ranks().at(0), SIGKILL);
  ASSERT_TRUE(says(program, "epoch 2 serves")) << program.err();
  const std::size_t said = program.out().size();
  ASSERT_TRUE(program.wait_until([&] { return program.out().size() > said; }, kAnswerLimit));
  kill(program.ranks().at(3), SIGKILL);
  expect_same_answer(program, text);
  EXPECT_EQ(mended(program.err()).size(), 2u) << program.err();
}

// The rank that replaces the lost one is killed as soon as it is there, and a survivor with it.
TEST(Recovery, KilledDuringRecovery_TheAnswerIsTheSame) {
  for (const std::string& mode : link_kinds()) {
    const Arguments command = answer(mode, kSampled);
    const std::string& text = undisturbed(command);
    LiveProgram program(command);
    ASSERT_TRUE(is_answering(program)) << program.err();
    const std::map<int, pid_t> first = program.ranks();
    kill(first.at(1), SIGKILL);
    ASSERT_TRUE(program.wait_until([&] { return program.ranks().at(1) != first.at(1); }, kPromise))
        << program.err();
    kill(program.ranks().at(1), SIGKILL);
    kill(first.at(2), SIGKILL);
    expect_same_answer(program, text);
    EXPECT_NE(program.err().find("epoch 3"), std::string::npos) << program.err();
  }
}

TEST(Recovery, RankThatDiesAtEachStart_EndsWithTheCauses) {
  const std::filesystem::path copy = std::filesystem::path(::testing::TempDir()) /
                                     ("recovery-" + std::to_string(getpid()) + ".gguf");
  std::filesystem::copy_file(kModel, copy, std::filesystem::copy_options::overwrite_existing);
  LiveProgram program(answer("shm", kGreedy, copy.string(), kEndless));
  ASSERT_TRUE(is_answering(program)) << program.err();
  const Footprint footprint = program.footprint();
  // Survivors hold the file open; a new rank does not find it.
  std::filesystem::remove(copy);
  kill(program.ranks().at(2), SIGKILL);
  const auto status = program.wait_for_exit(kAnswerLimit);
  ASSERT_TRUE(status) << program.err();
  EXPECT_NE(*status, 0);
  EXPECT_LT(*status, 128);
  EXPECT_NE(program.err().find("given up after 6 losses"), std::string::npos) << program.err();
  EXPECT_NE(program.err().find(copy.filename().string()), std::string::npos) << program.err();
  EXPECT_EQ(footprint.left_after(kGoneMax), "");
}

TEST(Recovery, LossThatIsNotMendedInTime_EndsWithTheCause) {
  LiveProgram program(answer("shm", kGreedy, kModel, kEndless) + Arguments{"--recover", "1"});
  ASSERT_TRUE(is_answering(program)) << program.err();
  const pid_t victim = program.ranks().at(1);
  kill(victim, SIGKILL);
  // Its replacement is held up for longer than the policy allows.
  ASSERT_TRUE(program.wait_until([&] { return program.ranks().at(1) != victim; }, kPromise));
  kill(program.ranks().at(1), SIGSTOP);
  const auto status = program.wait_for_exit(kPromise);
  ASSERT_TRUE(status) << program.err();
  EXPECT_NE(*status, 0);
  EXPECT_TRUE(std::regex_search(program.err(), std::regex("rank 1[^\n]*(SIGKILL|SIGSTOP)")))
      << program.err();
}

TEST(Recovery, InterruptDuringRecovery_EndsTheProgramAndLeavesNothing) {
  for (const int signal : {SIGTERM, SIGINT}) {
    LiveProgram program(answer("shm", kGreedy, kModel, kEndless));
    ASSERT_TRUE(is_answering(program)) << program.err();
    const pid_t victim = program.ranks().at(1);
    kill(victim, SIGKILL);
    ASSERT_TRUE(program.wait_until([&] { return program.ranks().at(1) != victim; }, kPromise));
    kill(program.ranks().at(1), SIGSTOP);
    const Footprint footprint = program.footprint();
    kill(program.pid(), signal);
    EXPECT_EQ(program.wait_for_exit(kPromise), 130) << program.err();
    EXPECT_EQ(footprint.left_after(kGoneMax), "") << program.err();
  }
}

}  // namespace
}  // namespace sinew::test
