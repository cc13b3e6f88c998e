// What a launcher's environment says of a rank, and how its ranks meet.
#include "engine/launcher.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <map>

#include "transport/tcp_socket.h"

namespace sinew {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Result<LaunchedRank> read(Launcher launcher, const Variables& variables) {
  return read_launched_rank(launcher, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}
Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "181141505"}};
const Variables kMpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_JOBID", "kvs_1"}};
const Variables kSlurm{
    {"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "6"},  {"SLURM_TASKS_PER_NODE", "2(x3)"},
    {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}, {"SINEW_RENDEZVOUS", "10.0.0.1:7000"}};
const Variables kByHand{
    {"SINEW_RANK", "0"}, {"SINEW_SIZE", "3"}, {"SINEW_RENDEZVOUS", "[fd00::1]:7000"}};

TEST(LaunchedRank, OpenMpiAndMpich_MeetOnOneMachineByTheJobsOwnPort) {
  const auto own = read(Launcher::kMpi, kOpenMpi);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->rank, 2);
  EXPECT_EQ(own->size, 4);
  EXPECT_EQ(own->on_first_machine, 4);
  EXPECT_EQ(own->rendezvous.host, "127.0.0.1");
  EXPECT_GE(own->rendezvous.port, 20000);
  EXPECT_LT(own->rendezvous.port, 32000);
  // The same on every rank of a job, and another job is another.
  const auto peer = read(Launcher::kMpi, with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0"));
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->rendezvous.port, own->rendezvous.port);
  EXPECT_EQ(peer->job, own->job);
  const auto other = read(Launcher::kMpi, with(kOpenMpi, "PMIX_NAMESPACE", "181141506"));
  ASSERT_TRUE(other);
  EXPECT_NE(other->job, own->job);
  const auto mpich = read(Launcher::kMpi, kMpich);
  ASSERT_TRUE(mpich) << mpich.error().message;
  EXPECT_EQ(mpich->rank, 1);
  EXPECT_EQ(mpich->size, 2);
}

TEST(LaunchedRank, Slurm_CountsTheRanksOfTheFirstMachine) {
  const auto own = read(Launcher::kSlurm, kSlurm);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->rank, 5);
  EXPECT_EQ(own->size, 6);
  EXPECT_EQ(own->on_first_machine, 2);
  EXPECT_EQ(own->rendezvous.host, "10.0.0.1");
  EXPECT_EQ(own->rendezvous.port, 7000);
}

TEST(LaunchedRank, ByHand_NeedsRankSizeAndRendezvous) {
  const auto own = read(Launcher::kEnv, kByHand);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->rendezvous.host, "fd00::1");
  for (const char* name : {"SINEW_RANK", "SINEW_SIZE", "SINEW_RENDEZVOUS"}) {
    const auto missing = read(Launcher::kEnv, without(kByHand, name));
    ASSERT_FALSE(missing) << name;
    EXPECT_EQ(missing.error().code, ErrorCode::kUsage);
    EXPECT_THAT(missing.error().message, HasSubstr(name));
  }
}

TEST(LaunchedRank, SeveralMachinesWithoutRendezvous_AreAskedForOne) {
  const auto mpi = read(Launcher::kMpi, with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"));
  ASSERT_FALSE(mpi);
  EXPECT_THAT(mpi.error().message, HasSubstr("set SINEW_RENDEZVOUS=ADDRESS:PORT"));
  EXPECT_FALSE(read(Launcher::kSlurm, without(kSlurm, "SINEW_RENDEZVOUS")));
}

TEST(LaunchedRank, WrongValues_AreNamed) {
  for (const auto& [name, value] : Variables{{"SINEW_RANK", "3"},
                                             {"SINEW_RANK ", "-1"},
                                             {"SINEW_SIZE", "9"},
                                             {"SINEW_SIZE ", "2x"},
                                             {"SINEW_RENDEZVOUS", "10.0.0.1"},
                                             {"SINEW_RENDEZVOUS ", "10.0.0.1:0"},
                                             {"SINEW_RENDEZVOUS  ", "10.0.0.1:70000"}}) {
    const std::string variable = name.substr(0, name.find(' '));
    const auto own = read(Launcher::kEnv, with(kByHand, variable, value));
    ASSERT_FALSE(own) << name << "=" << value;
    EXPECT_EQ(own.error().code, ErrorCode::kUsage);
    EXPECT_THAT(own.error().message, HasSubstr(variable + "=" + value));
  }
}

Deadline in(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Three processes of one job, on a port that is free now.
LaunchedRank of_three(Rank rank) {
  static const std::uint16_t port = [] {
    auto free = TcpListener::bind("127.0.0.1", 0);
    return free ? free->port() : std::uint16_t{0};
  }();
  return {rank, 3, {"127.0.0.1", port}, JobId{{1, 2}}, 3};
}

TEST(LaunchedRanks, MeetInAnyOrder) {
  auto two = std::async(std::launch::async,
                        [] { return join_rank_zero(of_three(2), in(milliseconds{5000})); });
  auto zero = std::async(std::launch::async,
                         [] { return await_ranks(of_three(0), in(milliseconds{5000})); });
  const auto one = join_rank_zero(of_three(1), in(milliseconds{5000}));
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(two.get());
  const auto ranks = zero.get();
  ASSERT_TRUE(ranks) << ranks.error().message;
  EXPECT_LT((*ranks)[0].socket.get(), 0);
  for (const std::size_t rank : {1, 2}) {
    EXPECT_GE((*ranks)[rank].socket.get(), 0);
    EXPECT_EQ((*ranks)[rank].host, "127.0.0.1");
  }
}

TEST(LaunchedRanks, MissingRanks_AreAllNamed) {
  const auto ranks = await_ranks(of_three(0), in(milliseconds{200}));
  ASSERT_FALSE(ranks);
  EXPECT_EQ(ranks.error().code, ErrorCode::kDeadline);
  EXPECT_THAT(ranks.error().message, HasSubstr("rank 1, 2 have not connected to rank 0"));
}

TEST(LaunchedRanks, MissingRankZero_IsNamedWithItsPlace) {
  const auto joined = join_rank_zero(of_three(1), in(milliseconds{200}));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(joined.error().rank, 0);
  EXPECT_THAT(joined.error().message, HasSubstr("rank 0 at 127.0.0.1 port "));
}

TEST(LaunchedRanks, RankOfAnotherJob_IsTurnedAway) {
  LaunchedRank other = of_three(1);
  other.job.words[0] ^= 1;
  auto stranger =
      std::async(std::launch::async, [&] { return join_rank_zero(other, in(milliseconds{600})); });
  const auto ranks = await_ranks(of_three(0), in(milliseconds{600}));
  ASSERT_FALSE(ranks);
  EXPECT_THAT(ranks.error().message, HasSubstr("last connection turned away: "));
  EXPECT_FALSE(stranger.get());
}

}  // namespace
}  // namespace sinew
