// Four agents as processes on four loopback addresses: they come up from one --join, and what
// happens to one of them is seen by the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cluster/live_program.h"
#include "support/process.h"

namespace sinew {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

#ifdef SINEW_SLOW_BUILD
constexpr int kSlow = 4;
#else
constexpr int kSlow = 1;
#endif

// Lets `done` be asked until it holds.
bool soon(const std::function<bool()>& done, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + kSlow * limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    const timespec breath{0, 50'000'000};
    ::nanosleep(&breath, nullptr);
  }
  return true;
}

class Agents : public ::testing::Test {
 protected:
  // An own loopback network for each test process, so that others beside it do not meet.
  std::string host(int number) const {
    const int pid = static_cast<int>(::getpid());
    return "127." + std::to_string(1 + pid % 250) + "." + std::to_string(pid / 250 % 250) + "." +
           std::to_string(number);
  }
  std::string state(int number) const { return folder_.file("state" + std::to_string(number)); }
  std::string token_file() const { return folder_.file("token"); }

  void create_cluster() {
    const auto made = test::run_checked({SINEW_PROGRAM, "cluster", "create", "--state", state(1)},
                                        "", seconds{20 * kSlow});
    ASSERT_TRUE(made) << made.error().message;
    token_ = made->out.substr(0, made->out.find('\n'));
    ASSERT_TRUE(token_.starts_with("sinew1-"));
    write_token(token_);
  }
  void write_token(const std::string& token) {
    ASSERT_TRUE(test::write_file(token_file(), token + "\n"));
    ASSERT_EQ(::chmod(token_file().c_str(), 0600), 0);
  }
  std::vector<std::string> command(int number, bool joins) const {
    // The machine's fingerprint is the test's, so that a copied folder can be told on one machine.
    std::vector<std::string> line{"/usr/bin/env",  "SINEW_MACHINE=machine" + std::to_string(number),
                                  SINEW_PROGRAM,   "node",
                                  "--state",       state(number),
                                  "--listen",      host(number),
                                  "--port",        "17463",
                                  "--no-discovery"};
    if (joins)
      line.insert(line.end(), {"--join", host(1) + ":17463", "--secret-file", token_file()});
    return line;
  }
  void start(int number, bool joins) {
    agents_[number] = std::make_unique<test::LiveProgram>(command(number, joins));
  }
  void start_four() {
    create_cluster();
    for (int number = 1; number <= 4; ++number) start(number, number != 1);
  }
  json nodes(int number) const {
    const auto shown = test::run_process(
        {SINEW_PROGRAM, "nodes", "--json", "--state", state(number)}, "", seconds{20 * kSlow});
    if (!shown || shown->exit_status != 0) return json::array();
    return json::parse(shown->out)["nodes"];
  }
  // Addresses of all nodes that are alive, as one of them sees it.
  std::multiset<std::string> alive(int number) const {
    std::multiset<std::string> found;
    for (const json& node : nodes(number)) {
      if (node["state"] == "alive") found.insert(node["addresses"][0]["address"]);
    }
    return found;
  }
  std::multiset<std::string> addresses(const std::vector<int>& numbers) const {
    std::multiset<std::string> all;
    for (const int number : numbers) all.insert(host(number) + ":17463");
    return all;
  }
  bool all_see(const std::vector<int>& numbers, milliseconds limit) const {
    return soon(
        [&] {
          return std::ranges::all_of(
              numbers, [&](int number) { return alive(number) == addresses(numbers); });
        },
        limit);
  }
  std::string id_of(int number) const {
    for (const json& node : nodes(number)) {
      if (node["self"]) return node["id"];
    }
    return {};
  }

  test::TemporaryFolder folder_;
  std::string token_;
  std::map<int, std::unique_ptr<test::LiveProgram>> agents_;
};

TEST_F(Agents, ComeUpFromOneAddressAndAgreeOnOneCoordinator) {
  start_four();
  ASSERT_TRUE(all_see({1, 2, 3, 4}, seconds{10}));
  const auto coordinator = [this](int number) -> std::string {
    for (const json& node : nodes(number)) {
      if (node["coordinator"]) return node["id"];
    }
    return {};
  };
  EXPECT_TRUE(soon(
      [&] {
        const std::string first = coordinator(1);
        return !first.empty() && coordinator(2) == first && coordinator(3) == first &&
               coordinator(4) == first;
      },
      seconds{10}));
  const auto links = test::run_checked({SINEW_PROGRAM, "links", "--json", "--state", state(2)}, "",
                                       seconds{20 * kSlow});
  ASSERT_TRUE(links) << links.error().message;
  EXPECT_EQ(json::parse(links->out)["links"].size(), 3U);
  // The secret is in no log, no event and no process list.
  const std::string secret = token_.substr(7 + 32, 64);
  for (auto& [number, agent] : agents_) {
    EXPECT_THAT(agent->err() + agent->out(), Not(HasSubstr(secret)));
    const auto events = test::read_file(state(number) + "/events");
    ASSERT_TRUE(events);
    EXPECT_THAT(*events, HasSubstr("joined"));
    EXPECT_THAT(*events, Not(HasSubstr(secret)));
    EXPECT_THAT(*test::read_file("/proc/" + std::to_string(agent->pid()) + "/cmdline"),
                Not(HasSubstr(secret)));
  }
}

TEST_F(Agents, AKilledOneDisappearsAndComesBackWithoutAGhost) {
  start_four();
  ASSERT_TRUE(all_see({1, 2, 3, 4}, seconds{10}));
  const std::string id = id_of(3);
  ASSERT_EQ(::kill(agents_[3]->pid(), SIGKILL), 0);
  ASSERT_TRUE(
      soon([&] { return nodes(1).size() == 3 && nodes(2).size() == 3 && nodes(4).size() == 3; },
           seconds{10}));
  // Of its own: where the others are, it remembers by nothing but the flags; they dial it as well.
  start(3, true);
  ASSERT_TRUE(all_see({1, 2, 3, 4}, seconds{10}));
  EXPECT_EQ(id_of(3), id);
  EXPECT_EQ(nodes(1).size(), 4U);
}

TEST_F(Agents, AStoppedOneIsMissedAndBackWhenItGoesOn) {
  start_four();
  ASSERT_TRUE(all_see({1, 2, 3, 4}, seconds{10}));
  ASSERT_EQ(::kill(agents_[4]->pid(), SIGSTOP), 0);
  EXPECT_TRUE(soon([&] { return nodes(1).size() == 3 && nodes(2).size() == 3; }, seconds{10}));
  ASSERT_EQ(::kill(agents_[4]->pid(), SIGCONT), 0);
  EXPECT_TRUE(all_see({1, 2, 3, 4}, seconds{10}));
}

TEST_F(Agents, AnOrderlyStopTakesLessThanFiveSecondsAndIsTold) {
  start_four();
  ASSERT_TRUE(all_see({1, 2, 3, 4}, seconds{10}));
  ASSERT_EQ(::kill(agents_[2]->pid(), SIGTERM), 0);
  EXPECT_EQ(agents_[2]->wait_for_exit(seconds{5 * kSlow}), 0);
  // By its word: long before silence would have told.
  EXPECT_TRUE(soon([&] { return nodes(1).size() == 3; }, seconds{3}));
}

TEST_F(Agents, AWrongSecretIsRefusedWithStatus7) {
  create_cluster();
  start(1, false);
  ASSERT_TRUE(soon([&] { return nodes(1).size() == 1; }, seconds{10}));
  const auto other = test::run_checked({SINEW_PROGRAM, "cluster", "create", "--state", state(9)},
                                       "", seconds{20 * kSlow});
  ASSERT_TRUE(other);
  write_token(other->out.substr(0, other->out.find('\n')));
  const auto refused = test::run_process(command(2, true), "", seconds{20 * kSlow});
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_EQ(refused->exit_status, 7) << refused->err;
  EXPECT_THAT(refused->err, HasSubstr("sinew cluster create"));
  EXPECT_FALSE(std::filesystem::exists(state(2) + "/cluster")) << "a refused secret is not kept";
  EXPECT_TRUE(soon(
      [&] {
        return agents_[1]->wait_until(
            [&] { return agents_[1]->err().find("another secret, or none") != std::string::npos; },
            milliseconds{100});
      },
      seconds{5}));
}

TEST_F(Agents, ACopiedStateFolderIsNoticedAndBothAreMembers) {
  create_cluster();
  start(1, false);
  start(2, true);
  ASSERT_TRUE(all_see({1, 2}, seconds{10}));
  // The disk of machine 2 as it is, in machine 3.
  std::filesystem::create_directory(state(3));
  ASSERT_EQ(::chmod(state(3).c_str(), 0700), 0);
  for (const auto& entry : std::filesystem::directory_iterator(state(2))) {
    if (entry.is_regular_file())
      std::filesystem::copy_file(entry.path(),
                                 std::filesystem::path(state(3)) / entry.path().filename());
  }
  start(3, true);
  ASSERT_TRUE(all_see({1, 2, 3}, seconds{10}));
  EXPECT_NE(id_of(3), id_of(2));
  const auto events =
      test::run_checked({SINEW_PROGRAM, "events", "--state", state(3)}, "", seconds{20 * kSlow});
  ASSERT_TRUE(events);
  EXPECT_THAT(events->out, HasSubstr("copied_state"));
}

TEST_F(Agents, ASecondAgentOnOneFolderIsRefused) {
  create_cluster();
  start(1, false);
  ASSERT_TRUE(soon([&] { return nodes(1).size() == 1; }, seconds{10}));
  const auto second = test::run_process(command(1, false), "", seconds{20 * kSlow});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->exit_status, 2);
  EXPECT_THAT(second->err, HasSubstr("another agent uses the state folder"));
  EXPECT_EQ(nodes(1).size(), 1U) << "the first one's control socket is still its own";
}

}  // namespace
}  // namespace sinew
