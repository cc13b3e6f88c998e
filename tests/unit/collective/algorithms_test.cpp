// Every algorithm, wire type and cabling over links that hold almost nothing: the bits that the
// definition gives, on every rank; and what they say when a rank is late, dead or confused.
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <random>
#include <tuple>

#include "collective/probe.h"
#include "unit/collective/narrow_links.h"

namespace sinew::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

GroupIdentity identity_of(Rank rank, int size) {
  return {JobId{{7, 8}}, 3, rank, size};
}

std::vector<float> vector_of(Rank rank, std::size_t length) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919u + static_cast<unsigned>(length));
  std::uniform_real_distribution<float> values(-3.0f, 3.0f);
  std::vector<float> data(length);
  for (float& value : data) value = values(random);
  return data;
}

void round_all(std::vector<float>& values, WireType type) {
  std::vector<std::byte> wire(values.size() * wire_width(type));
  ASSERT_TRUE(to_wire(values, type, wire.data()));
  from_wire(wire.data(), type, values);
}

// The definition: every vector rounded, added in rank order in float32, rounded again.
std::vector<float> expected_sum(RankSet among, std::size_t length, WireType type) {
  std::vector<float> sum;
  for (Rank rank = 0; rank < kRankCountMax; ++rank) {
    if (!among.contains(rank)) continue;
    std::vector<float> next = vector_of(rank, length);
    round_all(next, type);
    if (sum.empty()) {
      sum = next;
    } else {
      for (std::size_t i = 0; i < length; ++i) sum[i] += next[i];
    }
  }
  round_all(sum, type);
  return sum;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

struct Way {
  Cabling cabling;
  Algorithm algorithm;
};

std::vector<Way> ways() {
  return {{Cabling::kMesh, Algorithm::kOneShot}, {Cabling::kMesh, Algorithm::kTwoPhase},
          {Cabling::kRing, Algorithm::kRing},    {Cabling::kRing, Algorithm::kChain},
          {Cabling::kLine, Algorithm::kRing},    {Cabling::kLine, Algorithm::kChain}};
}

class AlgorithmsTest : public ::testing::TestWithParam<std::tuple<Way, WireType, int>> {
 protected:
  Way way() const { return std::get<0>(GetParam()); }
  WireType wire() const { return std::get<1>(GetParam()); }
  int size() const { return std::get<2>(GetParam()); }

  std::unique_ptr<Group> group(NarrowLinks& net, Rank rank, milliseconds timeout) const {
    GroupOptions options;
    options.timeout = timeout;
    options.wire = wire();
    return make_group(
        identity_of(rank, size()),
        net.links(rank, [&](Rank a, Rank b) { return joined(way().cabling, size(), a, b); }),
        options, plan_for(way().cabling, size(), way().algorithm));
  }
};

std::string case_name(const ::testing::TestParamInfo<std::tuple<Way, WireType, int>>& info) {
  const auto& [way, wire, size] = info.param;
  std::string name = way.cabling == Cabling::kMesh   ? "mesh_"
                     : way.cabling == Cabling::kRing ? "ring_"
                                                     : "line_";
  name += algorithm_name(way.algorithm);
  std::erase(name, '-');
  return name + "_" + std::string(wire_type_name(wire)) + "_" + std::to_string(size);
}

const auto kWires = ::testing::Values(WireType::kF32, WireType::kBf16, WireType::kF16);

INSTANTIATE_TEST_SUITE_P(Ways, AlgorithmsTest,
                         ::testing::Combine(::testing::ValuesIn(ways()), kWires,
                                            ::testing::Values(2, 3, 4, 5)),
                         case_name);

class SubsetsTest : public AlgorithmsTest {};
INSTANTIATE_TEST_SUITE_P(Ways, SubsetsTest,
                         ::testing::Combine(::testing::ValuesIn(ways()), kWires,
                                            ::testing::Values(4, 5)),
                         case_name);

// What goes wrong does not depend on the type of the values.
class FailingTest : public AlgorithmsTest {};
INSTANTIATE_TEST_SUITE_P(Ways, FailingTest,
                         ::testing::Combine(::testing::ValuesIn(ways()),
                                            ::testing::Values(WireType::kF32),
                                            ::testing::Values(3, 5)),
                         case_name);

TEST_P(AlgorithmsTest, AllReduce_GivesTheBitsOfTheDefinitionOnEveryRank) {
  NarrowLinks net(size(), 1000);
  run_as_ranks(size(), [&](Rank rank) {
    const auto own = group(net, rank, milliseconds{60000});
    for (const std::size_t length : {0u, 1u, 3u, 17u, 257u, 9001u, 30011u}) {
      std::vector<float> data = vector_of(rank, length);
      const Status status = own->all_reduce_sum(data);
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_TRUE(same_bits(data, expected_sum(RankSet::range(0, size()), length, wire())))
          << length << " floats on rank " << rank;
    }
  });
}

TEST_P(SubsetsTest, AllReduce_AddsAmongThemAlone) {
  NarrowLinks net(size(), 1000);
  run_as_ranks(size(), [&](Rank rank) {
    const auto own = group(net, rank, milliseconds{60000});
    const RankSet half = rank < 2 ? RankSet::range(0, 2) : RankSet::range(2, size() - 2);
    for (const RankSet among : {half, RankSet::range(0, size()), half}) {
      std::vector<float> data = vector_of(rank, 8195);
      const Status status = own->all_reduce_sum(data, among);
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_TRUE(same_bits(data, expected_sum(among, 8195, wire())));
    }
  });
}

TEST_P(AlgorithmsTest, GathersAndBroadcasts_ReachEveryRank) {
  NarrowLinks net(size(), 1000);
  run_as_ranks(size(), [&](Rank rank) {
    const auto own = group(net, rank, milliseconds{60000});
    std::vector<std::size_t> counts;
    std::vector<std::byte> expected;
    for (Rank each = 0; each < size(); ++each) {
      counts.push_back(each == 1 ? 0 : 10007u * std::size_t(each) + 3);
      expected.insert(expected.end(), counts.back(), std::byte(each + 1));
    }
    const std::vector<std::byte> mine(counts[std::size_t(rank)], std::byte(rank + 1));
    std::vector<std::byte> gathered(expected.size());
    Status status = own->all_gather(mine, counts, gathered);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(gathered, expected);
    for (Rank root = 0; root < size(); ++root) {
      std::vector<std::byte> at_root(rank == root ? expected.size() : 0);
      status = own->gather(root, mine, counts, at_root);
      ASSERT_TRUE(status) << status.error().message;
      if (rank == root) {
        EXPECT_EQ(at_root, expected);
      }
      for (const std::size_t length : {0u, 5u, 80001u}) {
        std::vector<std::byte> message(length, rank == root ? std::byte(root + 1) : std::byte{0});
        status = own->broadcast(root, message);
        ASSERT_TRUE(status) << status.error().message;
        EXPECT_EQ(message, std::vector<std::byte>(length, std::byte(root + 1)));
      }
    }
  });
}

// The last rank never comes. Whoever waits for it, directly or through others, blames it; nobody
// blames a rank that is there.
TEST_P(FailingTest, RankThatNeverComes_IsBlamedByAll) {
  NarrowLinks net(size(), 100000);
  const Rank missing = size() - 1;
  std::atomic<int> failed{0};
  run_as_ranks(size(), [&](Rank rank) {
    const auto own = group(net, rank, milliseconds{2000});
    if (rank == missing) {
      const Deadline end = std::chrono::steady_clock::now() + milliseconds{20000};
      while (failed < size() - 1 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(milliseconds{5});
      return;
    }
    std::vector<float> data = vector_of(rank, 100);
    const Status status = own->all_reduce_sum(data);
    ++failed;
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().rank, missing) << status.error().message;
    EXPECT_THAT(status.error().message, HasSubstr("all-reduce #1 of step 0"));
  });
}

TEST_P(FailingTest, RankThatLeaves_IsBlamedByAll) {
  NarrowLinks net(size(), 100000);
  const Rank missing = size() - 1;
  run_as_ranks(size(), [&](Rank rank) {
    const auto own = group(net, rank, milliseconds{20000});
    std::vector<float> data = vector_of(rank, 100);
    const Status first = own->all_reduce_sum(data);
    ASSERT_TRUE(first) << first.error().message;
    if (rank == missing) return;
    const Status status = own->all_reduce_sum(data);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(status.error().rank, missing) << status.error().message;
  });
}

TEST_P(FailingTest, RankAtAnotherStep_IsAnErrorNotAWrongSum) {
  NarrowLinks net(size(), 100000);
  run_as_ranks(size(), [&](Rank rank) {
    const auto own = group(net, rank, milliseconds{3000});
    own->set_step(rank == size() - 1 ? 6 : 5);
    std::vector<float> data = vector_of(rank, 100);
    EXPECT_FALSE(own->all_reduce_sum(data));
  });
}

TEST(AlgorithmFaults, ValueTooLargeForTheWire_IsTheSendersFault) {
  NarrowLinks net(2, 100000);
  run_as_ranks(2, [&](Rank rank) {
    GroupOptions options;
    options.wire = WireType::kF16;
    options.timeout = milliseconds{5000};
    const auto own =
        make_group(identity_of(rank, 2), net.links(rank, [](Rank, Rank) { return true; }), options);
    std::vector<float> data(4, rank == 1 ? 7e4f : 1.0f);
    const Status status = own->all_reduce_sum(data);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().rank, 1) << status.error().message;
    if (rank == 1) {
      EXPECT_THAT(status.error().message, HasSubstr("too large for the wire type f16"));
    }
  });
}

TEST(AlgorithmFaults, RanksWithDifferentWireTypes_AreTold) {
  NarrowLinks net(2, 100000);
  run_as_ranks(2, [&](Rank rank) {
    GroupOptions options;
    options.wire = rank == 0 ? WireType::kBf16 : WireType::kF16;
    options.timeout = milliseconds{5000};
    const auto own =
        make_group(identity_of(rank, 2), net.links(rank, [](Rank, Rank) { return true; }), options);
    std::vector<float> data(4, 1.0f);
    EXPECT_FALSE(own->all_reduce_sum(data));
  });
}

TEST(AlgorithmFaults, SubsetWithoutARoute_IsUnsupported) {
  NarrowLinks net(5, 100000);
  run_as_ranks(5, [&](Rank rank) {
    if (rank == 1 || rank == 4) return;
    const auto own =
        make_group(identity_of(rank, 5),
                   net.links(rank, [](Rank a, Rank b) { return joined(Cabling::kRing, 5, a, b); }),
                   {}, plan_for(Cabling::kRing, 5, Algorithm::kRing));
    std::vector<std::byte> data(5);
    const Status status = own->broadcast(0, data, RankSet{0b01101});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported) << status.error().message;
  });
}

class FormGroupTest : public ::testing::TestWithParam<std::tuple<Cabling, int>> {};

INSTANTIATE_TEST_SUITE_P(Cablings, FormGroupTest,
                         ::testing::Combine(::testing::Values(Cabling::kMesh, Cabling::kRing,
                                                              Cabling::kLine),
                                            ::testing::Values(2, 3, 4, 5, 8)));

TEST_P(FormGroupTest, AllRanks_HoldThePlanOfRank0AndCanAddByIt) {
  const auto [cabling, size] = GetParam();
  NarrowLinks net(size, 20000);
  std::array<CollectivePlan, kRankCountMax> plans;
  run_as_ranks(size, [&, cabling = cabling, ranks = size](Rank rank) {
    const auto formed = form_group(
        identity_of(rank, ranks),
        net.links(rank, [&](Rank a, Rank b) { return joined(cabling, ranks, a, b); }), {});
    ASSERT_TRUE(formed) << formed.error().message;
    plans[std::size_t(rank)] = (*formed)->plan();
    for (const std::size_t length : {5u, 9000u, 100001u}) {
      std::vector<float> data = vector_of(rank, length);
      const Status status = (*formed)->all_reduce_sum(data);
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_TRUE(same_bits(data, expected_sum(RankSet::range(0, ranks), length, WireType::kF32)));
    }
  });
  for (Rank rank = 0; rank < size; ++rank) {
    const CollectivePlan& plan = plans[std::size_t(rank)];
    EXPECT_EQ(plan.one_shot_max, plans[0].one_shot_max);
    EXPECT_EQ(plan.ring_max, plans[0].ring_max);
    for (Rank a = 0; a < size; ++a)
      for (Rank b = 0; b < size; ++b)
        EXPECT_EQ(plan.linked[std::size_t(a)].contains(b), a != b && joined(cabling, size, a, b));
  }
}

TEST(FormGroup, CablesThatSkipANeighbour_AreUnsupported) {
  NarrowLinks net(3, 20000);
  run_as_ranks(3, [&](Rank rank) {
    // 0 - 2 - 1
    const auto formed = form_group(
        identity_of(rank, 3), net.links(rank, [](Rank a, Rank b) { return a == 2 || b == 2; }), {});
    ASSERT_FALSE(formed);
    if (rank != 2) {
      EXPECT_EQ(formed.error().code, ErrorCode::kUnsupported) << formed.error().message;
      EXPECT_THAT(formed.error().message, HasSubstr("in the order of their ranks"));
    }
  });
}

TEST(FormGroup, RankThatIsGone_IsNamed) {
  NarrowLinks net(3, 20000);
  run_as_ranks(3, [&](Rank rank) {
    auto links = net.links(rank, [](Rank, Rank) { return true; });
    if (rank == 2) return;
    const auto formed = form_group(identity_of(rank, 3), std::move(links), {});
    ASSERT_FALSE(formed);
    EXPECT_EQ(formed.error().rank, 2) << formed.error().message;
    EXPECT_THAT(formed.error().message, HasSubstr("probe #1"));
  });
}

}  // namespace
}  // namespace sinew::testing
