// What a rank sees of another that is late, stopped, killed, gone or confused.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "unit/transport/ranks.h"

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

class FailureTest : public ::testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(Transports, FailureTest, ::testing::ValuesIn(all_transports()),
                         [](const ::testing::TestParamInfo<Transport>& shape) {
                           return transport_name(shape.param);
                         });

GroupOptions options_of(milliseconds timeout, std::size_t threshold = 64u << 10) {
  GroupOptions options;
  options.timeout = timeout;
  options.threshold_bytes = threshold;
  return options;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// A rank in a process of its own, so that it can be stopped and killed.
class RankProcess {
 public:
  template <typename Body>
  explicit RankProcess(const Body& body) : pid_(fork()) {
    if (pid_ == 0) {
      body();
      _exit(0);
    }
  }
  ~RankProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void signal(int number) const { kill(pid_, number); }

 private:
  pid_t pid_;
};

// Sums for ever; only a signal or an error ends it.
void sum_until_failure(Mesh& mesh, Rank rank) {
  const auto group = mesh.group(rank, options_of(milliseconds{20000}));
  std::vector<float> data(2048, 1.0f);
  while (group->all_reduce_sum(data)) {
  }
}

struct Outcome {
  Error error;
  double seconds = 0;
  double cpu = 0;
};

// Sums until an error; tells `signal` once the sums flow.
template <typename Signal>
Outcome sum_and_signal(Group& group, const Signal& signal) {
  Outcome outcome;
  std::vector<float> data(2048, 1.0f);
  for (int i = 0; i < 100; ++i) {
    const Status status = group.all_reduce_sum(data);
    EXPECT_TRUE(status) << status.error().message;
  }
  signal();
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  Status status;
  while (status) status = group.all_reduce_sum(data);
  outcome.error = status.error();
  outcome.cpu = cpu_seconds() - cpu_start;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

TEST_P(FailureTest, StoppedRank_IsNamedByTheDeadlineWhileTheOthersSleep) {
  Mesh mesh(GetParam(), 3);
  RankProcess one([&] { sum_until_failure(mesh, 1); });
  RankProcess two([&] { sum_until_failure(mesh, 2); });
  const auto group = mesh.group(0, options_of(milliseconds{700}));
  group->set_step(0);
  const Outcome outcome = sum_and_signal(*group, [&] { two.signal(SIGSTOP); });
  EXPECT_EQ(outcome.error.code, ErrorCode::kDeadline);
  ASSERT_TRUE(outcome.error.rank);
  // UCX may still hold the message to one peer when the signal comes. That peer is then one sum
  // behind, and its word about whom it waits for races with this rank's deadline.
  if (!over_ucx(GetParam()) || outcome.error.rank != 1) {
    EXPECT_EQ(outcome.error.rank, 2) << outcome.error.message;
  }
  EXPECT_THAT(outcome.error.message,
              HasSubstr(fmt::format("rank {} is late for all-reduce #", *outcome.error.rank)));
  EXPECT_THAT(outcome.error.message, HasSubstr(" of step 0 (waited 0.7 s over "));
  EXPECT_LT(outcome.seconds, 1.5);
  EXPECT_LT(outcome.cpu, 0.15);

  // The group is finished: the same error at once.
  std::vector<float> data(4);
  const Status again = group->all_reduce_sum(data);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, outcome.error.message);
}

TEST_P(FailureTest, KilledRank_IsNamedWithinTheDeadline) {
  Mesh mesh(GetParam(), 2);
  RankProcess one([&] { sum_until_failure(mesh, 1); });
  const auto group = mesh.group(0, options_of(milliseconds{700}));
  const Outcome outcome = sum_and_signal(*group, [&] { one.signal(SIGKILL); });
  EXPECT_EQ(outcome.error.rank, 1) << outcome.error.message;
  EXPECT_LT(outcome.seconds, 1.5);
  if (GetParam() != Transport::kShm) {
    EXPECT_EQ(outcome.error.code, ErrorCode::kPeerLost) << outcome.error.message;
    EXPECT_LT(outcome.seconds, 0.4) << "the kernel closes the connections of a killed rank";
  }
}

TEST_P(FailureTest, ClosedGroup_IsNoticedLongBeforeTheDeadline) {
  Mesh mesh(GetParam(), 2);
  mesh.run(
      [](Group& group) {
        std::vector<float> data(16, 1.0f);
        ASSERT_TRUE(group.all_reduce_sum(data));
        if (group.rank() == 1) return;  // closes its links
        const auto start = std::chrono::steady_clock::now();
        const Status status = group.all_reduce_sum(data);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
        EXPECT_EQ(status.error().rank, 1);
        EXPECT_THAT(status.error().message, HasSubstr("all-reduce #2 of step 0"));
        EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds{2000});
      },
      options_of(milliseconds{8000}));
}

// Rank 1 finds that rank 2 is late and gives up. Rank 0, which has all it needs of rank 2, waits
// for rank 1 and must blame rank 2 all the same.
TEST_P(FailureTest, BlameTravels_ToRanksThatWaitForTheMessenger) {
  Mesh mesh(GetParam(), 3);
  std::atomic<bool> done{false};
  mesh.run(
      [&](Group& group) {
        std::vector<float> data(16, 1.0f);
        std::vector<std::byte> token(8);
        std::vector<std::size_t> counts{0, 0, 8};
        if (group.rank() == 2) {
          while (!done) std::this_thread::sleep_for(milliseconds{5});
          return;
        }
        // Rank 1 waits for rank 2 to broadcast; rank 0, a little later, waits for rank 1.
        if (group.rank() == 0) std::this_thread::sleep_for(milliseconds{100});
        const Status status =
            group.rank() == 1 ? group.broadcast(2, token) : group.gather(0, {}, counts, token);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().rank, 2) << status.error().message;
        if (group.rank() == 0) done = true;
      },
      options_of(milliseconds{400}));
}

TEST_P(FailureTest, RankAtAnotherStep_IsAnErrorNotAWrongSum) {
  Mesh mesh(GetParam(), 2);
  mesh.run(
      [](Group& group) {
        group.set_step(group.rank() == 0 ? 5 : 6);
        std::vector<float> data(16, 1.0f);
        const Status status = group.all_reduce_sum(data);
        ASSERT_FALSE(status);
        EXPECT_THAT(status.error().code,
                    ::testing::AnyOf(ErrorCode::kProtocol, ErrorCode::kPeerLost));
      },
      options_of(milliseconds{1000}));
}

TEST_P(FailureTest, PeerThatNeverReads_IsNamedBySendersOfLongMessages) {
  Mesh mesh(GetParam(), 2);
  std::atomic<bool> done{false};
  mesh.run(
      [&](Group& group) {
        if (group.rank() == 1) {
          while (!done) std::this_thread::sleep_for(milliseconds{5});
          return;
        }
        std::vector<std::byte> data(32u << 20);
        const Status status = group.broadcast(0, data);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, ErrorCode::kDeadline);
        EXPECT_EQ(status.error().rank, 1);
        EXPECT_THAT(status.error().message, HasSubstr("rank 1 is late for broadcast #1"));
        done = true;
      },
      options_of(milliseconds{400}));
}

}  // namespace
}  // namespace sinew::testing
