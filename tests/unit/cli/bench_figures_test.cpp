#include "cli/bench_figures.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "cli/bench_ranks.h"

namespace sinew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BenchFigures, Percentiles_AreMeasuredValues) {
  std::vector<double> values(1000);
  std::iota(values.rbegin(), values.rend(), 1.0);
  const Percentiles of_thousand = percentiles_of(values);
  EXPECT_EQ(of_thousand.p50, 500);
  EXPECT_EQ(of_thousand.p90, 900);
  EXPECT_EQ(of_thousand.p99, 990);
  EXPECT_EQ(of_thousand.max, 1000);
  const Percentiles of_one = percentiles_of({7});
  EXPECT_EQ(of_one.p50, 7);
  EXPECT_EQ(of_one.max, 7);
}

TEST(BenchFigures, Sizes_AreReadWithUnits) {
  const auto sizes = parse_sizes("4,28K,64M");
  ASSERT_TRUE(sizes);
  EXPECT_THAT(*sizes, ElementsAre(4u, 28u << 10, 64u << 20));
  for (const char* wrong : {"", "0", "3", "4,", "4k", "65M", "-4", "4KK", "99999999999999999999",
                            "18446744073709551615M"}) {
    const auto none = parse_sizes(wrong);
    ASSERT_FALSE(none) << wrong;
    EXPECT_EQ(none.error().code, ErrorCode::kUsage);
  }
}

TEST(BenchFigures, Defaults_RunFrom4BytesTo64Megabytes) {
  const auto sizes = default_sizes();
  EXPECT_EQ(sizes.front(), 4u);
  EXPECT_EQ(sizes.back(), 64u << 20);
  EXPECT_EQ(repeats_for(4, 1000), 1000);
  EXPECT_EQ(repeats_for(64 << 20, 1000), 5);
  EXPECT_EQ(repeats_for(64 << 20, 2), 2);
}

TEST(BenchFigures, Verdict_SaysHowMuchSlower) {
  EXPECT_EQ(verdict(15, 10), "ok");
  EXPECT_EQ(verdict(35, 10), "3.5x slower");
}

class BenchRanksTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, BenchRanksTest, ::testing::Values("shm", "tcp"));

TEST_P(BenchRanksTest, Reports_ComeByRank) {
  const auto reports = run_bench_ranks(
      GetParam(), 3, std::chrono::seconds{60},
      [](const GroupIdentity& identity, const Links& links) -> Result<std::string> {
        return fmt::format("{} of {}", identity.rank, links.size()) + std::string(100000, '.');
      });
  ASSERT_TRUE(reports) << reports.error().message;
  ASSERT_EQ(reports->size(), 3u);
  EXPECT_THAT((*reports)[2], HasSubstr("2 of 3...."));
  EXPECT_EQ((*reports)[1].size(), 6u + 100000u);
}

TEST_P(BenchRanksTest, ErrorOfARank_IsTheErrorOfAll) {
  const auto reports =
      run_bench_ranks(GetParam(), 2, std::chrono::seconds{60},
                      [](const GroupIdentity& identity, const Links&) -> Result<std::string> {
                        if (identity.rank == 1)
                          return fail(ErrorCode::kIntegrity, "rank 1 is out of order");
                        return std::string("fine");
                      });
  ASSERT_FALSE(reports);
  EXPECT_EQ(reports.error().code, ErrorCode::kIntegrity);
  EXPECT_EQ(reports.error().message, "rank 1 is out of order");
}

TEST_P(BenchRanksTest, RankThatDies_IsNamed) {
  const auto reports =
      run_bench_ranks(GetParam(), 2, std::chrono::seconds{60},
                      [](const GroupIdentity& identity, const Links& links) -> Result<std::string> {
                        if (identity.rank == 1) std::_Exit(3);
                        std::byte byte{};
                        SINEW_TRY(links[1]->receive({&byte, 1}, std::chrono::steady_clock::now() +
                                                                    std::chrono::seconds{1}));
                        return std::string("fine");
                      });
  ASSERT_FALSE(reports);
  EXPECT_EQ(reports.error().message, "rank 1 died");
}

TEST_P(BenchRanksTest, LongestTime_EndsRanksThatGoOn) {
  const auto start = std::chrono::steady_clock::now();
  const auto reports =
      run_bench_ranks(GetParam(), 2, std::chrono::seconds{1},
                      [](const GroupIdentity&, const Links&) -> Result<std::string> {
                        std::this_thread::sleep_for(std::chrono::seconds{60});
                        return std::string("late");
                      });
  ASSERT_FALSE(reports);
  EXPECT_EQ(reports.error().code, ErrorCode::kDeadline);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{30});
}

TEST(BenchRanks, UnknownTransportAndRanks_AreUsage) {
  const BenchRank nothing = [](const GroupIdentity&, const Links&) -> Result<std::string> {
    return std::string();
  };
  for (const auto& [transport, ranks] :
       {std::pair<const char*, int>{"pigeon", 2}, {"shm", 0}, {"shm", 9}}) {
    const auto reports = run_bench_ranks(transport, ranks, std::chrono::seconds{10}, nothing);
    ASSERT_FALSE(reports);
    EXPECT_EQ(reports.error().code, ErrorCode::kUsage);
  }
}

}  // namespace
}  // namespace sinew
