#include "host/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace sinew {
namespace {

using ::testing::HasSubstr;

pid_t shell(const std::string& script, const std::vector<int>& descriptors = {}) {
  const auto child = spawn("/bin/sh", {"-c", script}, descriptors);
  EXPECT_TRUE(child) << child.error().message;
  return child.value_or(-1);
}

// The next event of a child, or nothing after ten seconds.
std::optional<ChildEvent> next_event(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    if (const auto event = poll_child(child)) return event;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

void expect_event(pid_t child, ChildEvent::Kind kind, int value) {
  const auto event = next_event(child);
  ASSERT_TRUE(event) << "nothing happened";
  EXPECT_EQ(static_cast<int>(event->kind), static_cast<int>(kind));
  EXPECT_EQ(event->value, value);
}

TEST(Spawn, ExitStatusIsTold) {
  expect_event(shell("exit 0"), ChildEvent::Kind::kExited, 0);
  expect_event(shell("exit 7"), ChildEvent::Kind::kExited, 7);
}

TEST(Spawn, SignalThatKilledIsTold) {
  expect_event(shell("kill -KILL $$"), ChildEvent::Kind::kKilled, SIGKILL);
  expect_event(shell("kill -TERM $$"), ChildEvent::Kind::kKilled, SIGTERM);
}

TEST(Spawn, StoppedAndContinuedAreToldBeforeTheEnd) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair) << pair.error().message;
  // Waits for the end of its descriptor 3 so that it still lives when it is looked at.
  const pid_t child = shell("kill -STOP $$; read word <&3; exit 5", {pair->second.get()});
  pair->second.reset();
  expect_event(child, ChildEvent::Kind::kStopped, SIGSTOP);
  EXPECT_FALSE(poll_child(child)) << "told twice";
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  expect_event(child, ChildEvent::Kind::kContinued, SIGCONT);
  pair->first.reset();
  expect_event(child, ChildEvent::Kind::kExited, 5);
}

TEST(Spawn, DescriptorsBecomeThreeAndFour) {
  auto one = socket_pair();
  auto two = socket_pair();
  ASSERT_TRUE(one && two);
  const pid_t child =
      shell("echo three >&3; echo four >&4", {one->second.get(), two->second.get()});
  expect_event(child, ChildEvent::Kind::kExited, 0);
  char text[16] = {};
  EXPECT_EQ(::recv(one->first.get(), text, sizeof text, 0), 6);
  EXPECT_STREQ(text, "three\n");
  EXPECT_EQ(::recv(two->first.get(), text, sizeof text, 0), 5);
}

TEST(Spawn, ChildIsAGroupOfItsOwnWithDefaultSignals) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGTERM, &ignore, &before), 0);
  auto pair = socket_pair();
  ASSERT_TRUE(pair);
  const pid_t child = shell("read word <&3", {pair->second.get()});
  ASSERT_EQ(::sigaction(SIGTERM, &before, nullptr), 0);
  EXPECT_EQ(::getpgid(child), child);
  ASSERT_EQ(::kill(child, SIGTERM), 0);
  expect_event(child, ChildEvent::Kind::kKilled, SIGTERM);
}

TEST(Spawn, MissingProgramIsNamed) {
  const auto child = spawn("/no/such/program", {}, {});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kIo);
  EXPECT_THAT(child.error().message, HasSubstr("/no/such/program"));
}

TEST(Spawn, ChildInheritsOnlyWhatItIsGiven) {
  const Descriptor stray(::open("/dev/null", O_RDONLY));  // not close-on-exec, as libraries do
  ASSERT_GE(stray.get(), 0);
  const auto pair = socket_pair();
  ASSERT_TRUE(pair);
  const std::string seen = fmt::format("[ -e /dev/fd/3 ] && ! [ -e /dev/fd/{} ]", stray.get() + 20);
  const Descriptor high(::fcntl(stray.get(), F_DUPFD, stray.get() + 20));
  ASSERT_EQ(high.get(), stray.get() + 20);
  expect_event(shell(seen, {pair->second.get()}), ChildEvent::Kind::kExited, 0);
}

TEST(PollChild, StrangerAndRunningChildHaveNoEvent) {
  EXPECT_FALSE(poll_child(::getppid()));
  auto pair = socket_pair();
  ASSERT_TRUE(pair);
  const pid_t child = shell("read word <&3", {pair->second.get()});
  EXPECT_FALSE(poll_child(child));
  EXPECT_TRUE(kill_child(child, std::chrono::steady_clock::now() + std::chrono::seconds(10)));
}

TEST(KillChild, EndsAndReapsAlsoAStoppedChild) {
  const pid_t child = shell("kill -STOP $$");
  expect_event(child, ChildEvent::Kind::kStopped, SIGSTOP);
  EXPECT_TRUE(kill_child(child, std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(::kill(child, 0), -1) << "not reaped";
}

TEST(Descriptor, ClosesWhatItOwnsOnce) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair);
  const int fd = pair->first.get();
  EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  Descriptor moved = std::move(pair->first);
  EXPECT_EQ(moved.get(), fd);
  EXPECT_NE(::fcntl(fd, F_GETFD), -1);
  const int released = Descriptor(std::move(moved)).release();
  EXPECT_NE(::fcntl(released, F_GETFD), -1);
  Descriptor(released).reset();
  EXPECT_EQ(::fcntl(released, F_GETFD), -1);
}

TEST(SignalName, KnownSignalsHaveNamesAndOthersNumbers) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(42), "signal 42");
}

TEST(Machine, SaysWhatItHas) {
  const auto program = own_program();
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_THAT(*program, HasSubstr("host_test"));
  EXPECT_GE(usable_cores(), 1);
  EXPECT_GT(available_memory(), 1u << 20);
}

constexpr std::size_t kTouchedBytes = 96u << 20;
constexpr const char* kChildMark = "SINEW_TEST_MEASURES_ITSELF";

TEST(PeakResidentBytes, GrowsWithTouchedMemory) {
  const std::uint64_t before = peak_resident_bytes();
  EXPECT_GT(before, 0u);
  const std::vector<char> touched(before + kTouchedBytes, 'x');
  EXPECT_GT(peak_resident_bytes(), before + kTouchedBytes / 2);
  EXPECT_EQ(touched.back(), 'x');
}

// A rank must not report the memory of the program that started it. This test starts itself.
TEST(PeakResidentBytes, IsNotThatOfTheParent) {
  if (std::getenv(kChildMark) != nullptr) {
    EXPECT_LT(peak_resident_bytes(), kTouchedBytes);
    return;
  }
  const std::vector<char> touched(2 * kTouchedBytes, 'x');
  const auto program = own_program();
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_EQ(::setenv(kChildMark, "1", 1), 0);
  const auto child = spawn(
      *program, {"--gtest_filter=PeakResidentBytes.IsNotThatOfTheParent", "--gtest_brief=1"}, {});
  ::unsetenv(kChildMark);
  ASSERT_TRUE(child) << child.error().message;
  expect_event(*child, ChildEvent::Kind::kExited, 0);
  EXPECT_EQ(touched.back(), 'x');
}

}  // namespace
}  // namespace sinew
