// Which algorithm is chosen, on the fabrics of the field: latencies and bandwidths as published for
// Thunderbolt 5, InfiniBand, RoCE, 10 Gb Ethernet and shared memory.
#include "collective/collective_plan.h"

#include <gmock/gmock.h>

namespace sinew {
namespace {

FabricFigures fabric(int ranks, double latency_us, double gb_per_s, double crowding) {
  FabricFigures figures;
  figures.ranks = ranks;
  figures.crowding = crowding;
  for (std::size_t a = 0; a < static_cast<std::size_t>(ranks); ++a)
    for (std::size_t b = 0; b < static_cast<std::size_t>(ranks); ++b)
      if (a != b) figures.links[a][b] = LinkFigures{latency_us, gb_per_s * 1000};
  return figures;
}

FabricFigures ring_of(FabricFigures figures, bool closed) {
  for (int a = 0; a < figures.ranks; ++a) {
    for (int b = 0; b < figures.ranks; ++b) {
      const int apart = a < b ? b - a : a - b;
      if (apart != 1 && !(closed && apart == figures.ranks - 1))
        figures.links[std::size_t(a)][std::size_t(b)].reset();
    }
  }
  return figures;
}

// One wire for each pair: n* = a B / (1 - 2/p).
TEST(CollectivePlanTest, Thunderbolt5Mesh_CrossesWhereTheFormulaSays) {
  const auto four = choose_collectives(fabric(4, 6, 7, 1));
  EXPECT_NEAR(double(four.one_shot_max[4]), 84e3, 1e3);
  const auto eight = choose_collectives(fabric(8, 6, 7, 1));
  EXPECT_NEAR(double(eight.one_shot_max[8]), 56e3, 1e3);
  EXPECT_EQ(four.one_shot_max[2], ~std::uint64_t{0}) << "two ranks save no bytes by two phases";
}

// One wire for each rank: n* = a B / ((p-1) (1 - 2/p)).
TEST(CollectivePlanTest, SharedNic_CrossesWhereTheFormulaSays) {
  EXPECT_NEAR(double(choose_collectives(fabric(4, 2.5, 20, 3)).one_shot_max[4]), 33.3e3, 500);
  EXPECT_NEAR(double(choose_collectives(fabric(4, 2, 2.9, 3)).one_shot_max[4]), 3.87e3, 100);
  EXPECT_NEAR(double(choose_collectives(fabric(4, 22, 1.05, 3)).one_shot_max[4]), 15.4e3, 300);
}

// One core adds 16 KB in a microsecond: everyone adding everything costs more than the wire.
TEST(CollectivePlanTest, SlowAdding_FavoursTwoPhases) {
  FabricFigures shm = fabric(4, 0.5, 9, 1.5);
  const auto before = choose_collectives(shm).one_shot_max[4];
  shm.add_us_per_byte = 1.0 / (16 << 10);
  const auto after = choose_collectives(shm);
  EXPECT_LT(after.one_shot_max[4], before / 2);
  EXPECT_LT(after.one_shot_max[2], ~std::uint64_t{0}) << "two ranks share the work of adding";
}

TEST(CollectivePlanTest, ThunderboltRing_ForwardsShortVectorsAndChainsLongOnes) {
  for (const bool closed : {true, false}) {
    const auto figures = ring_of(fabric(6, 6, 7, 1), closed);
    const auto plan = choose_collectives(figures);
    const RankSet all = RankSet::range(0, 6);
    EXPECT_FALSE(plan.complete(all));
    EXPECT_EQ(plan.algorithm(all, 14 << 10), Algorithm::kRing);
    EXPECT_EQ(plan.algorithm(all, 28 << 10), Algorithm::kRing);
    EXPECT_EQ(plan.algorithm(all, 8 << 20), Algorithm::kChain);
    // Neighbours have a wire of their own.
    EXPECT_EQ(plan.algorithm(RankSet::range(2, 2), 28 << 10), Algorithm::kOneShot);
    const double short_us = expected_us(figures, Algorithm::kRing, 6, 14 << 10);
    EXPECT_GT(short_us, closed ? 20 : 40);
    EXPECT_LT(short_us, closed ? 45 : 75);
  }
}

TEST(CollectivePlanTest, Choice_IsTheOneWithTheLeastExpectedTime) {
  for (FabricFigures figures :
       {fabric(4, 6, 7, 1), fabric(5, 22, 1, 4), fabric(8, 1, 11.5, 7), fabric(3, 0.4, 9, 1.2),
        ring_of(fabric(5, 6, 7, 1), true), ring_of(fabric(8, 22, 1, 2), true),
        ring_of(fabric(7, 6, 7, 1.5), false)}) {
    figures.add_us_per_byte = 3e-5;
    const auto plan = choose_collectives(figures);
    for (int count = 2; count <= figures.ranks; ++count) {
      for (std::uint64_t bytes = 64; bytes < (64u << 20); bytes += bytes / 3 + 1) {
        const RankSet among = RankSet::range(0, count);
        const Algorithm chosen = plan.algorithm(among, bytes);
        const bool direct = plan.complete(among);
        const Algorithm other = chosen == Algorithm::kOneShot    ? Algorithm::kTwoPhase
                                : chosen == Algorithm::kTwoPhase ? Algorithm::kOneShot
                                : chosen == Algorithm::kRing     ? Algorithm::kChain
                                                                 : Algorithm::kRing;
        EXPECT_EQ(direct, chosen == Algorithm::kOneShot || chosen == Algorithm::kTwoPhase);
        const auto length = static_cast<double>(bytes);
        EXPECT_LE(expected_us(figures, chosen, count, length),
                  expected_us(figures, other, count, length) * 1.001)
            << algorithm_name(chosen) << " of " << bytes << " bytes among " << count;
      }
    }
  }
}

TEST(CollectivePlanTest, OneSlowLink_SetsThePaceOfTheMesh) {
  FabricFigures mixed = fabric(4, 0.5, 9, 1);
  mixed.links[1][3] = mixed.links[3][1] = LinkFigures{22, 1000};
  EXPECT_EQ(choose_collectives(mixed).one_shot_max[4],
            choose_collectives(fabric(4, 22, 1, 1)).one_shot_max[4]);
  EXPECT_EQ(choose_collectives(mixed).one_shot_max[3],
            choose_collectives(fabric(4, 22, 1, 1)).one_shot_max[3]);
}

TEST(CollectivePlanTest, Route_FollowsTheCables) {
  const auto ring = choose_collectives(ring_of(fabric(5, 6, 7, 1), true));
  const auto all = ring.route(RankSet::range(0, 5), 5);
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->closed);
  EXPECT_EQ(all->at(all->position(4), 1), 0);
  // Past the end: 4, 0, 1. Sums there are not in rank order, so no chain.
  const RankSet wrapped{0b10011};
  const auto around = ring.route(wrapped, 5);
  ASSERT_TRUE(around);
  EXPECT_THAT(std::vector<Rank>(around->order.begin(), around->order.begin() + 3),
              ::testing::ElementsAre(4, 0, 1));
  EXPECT_FALSE(around->closed);
  EXPECT_EQ(ring.algorithm(wrapped, 64 << 20), Algorithm::kRing);
  EXPECT_FALSE(ring.route(RankSet{0b01101}, 5)) << "1 takes no part and 0 has no link to 2";
  const auto line = choose_collectives(ring_of(fabric(5, 6, 7, 1), false));
  EXPECT_FALSE(line.route(wrapped, 5));
  EXPECT_FALSE(line.route(RankSet::range(0, 5), 5)->closed);
}

}  // namespace
}  // namespace sinew
