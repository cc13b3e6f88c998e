// Every operation over the real transports, with threads as ranks: the same bits on every rank,
// whatever the algorithm, the transport and the length.
#include <cstring>
#include <random>

#include "unit/transport/ranks.h"

namespace sinew::testing {
namespace {

std::vector<float> vector_of(Rank rank, std::size_t length) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919u + static_cast<unsigned>(length));
  std::uniform_real_distribution<float> values(-3.0f, 3.0f);
  std::vector<float> data(length);
  for (float& value : data) value = values(random);
  return data;
}

// The sum that every algorithm must give, bit for bit: rank order, in single precision.
std::vector<float> expected_sum(int size, std::size_t length) {
  std::vector<float> sum = vector_of(0, length);
  for (Rank rank = 1; rank < size; ++rank) {
    const std::vector<float> next = vector_of(rank, length);
    for (std::size_t i = 0; i < length; ++i) sum[i] += next[i];
  }
  return sum;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct Shape {
  Transport transport;
  int size;
};

class MeshTest : public ::testing::TestWithParam<Shape> {};

std::string shape_name(const ::testing::TestParamInfo<Shape>& info) {
  return transport_name(info.param.transport) + std::to_string(info.param.size);
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const Transport transport : all_transports()) {
    for (const int size : {1, 2, 3, 4, 5, 6, 7, 8}) all.push_back({transport, size});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, MeshTest, ::testing::ValuesIn(shapes()), shape_name);

TEST_P(MeshTest, AllReduce_GivesTheSameBitsForEveryLengthAndAlgorithm) {
  const auto transport = GetParam().transport;
  const int size = GetParam().size;
  for (const std::size_t threshold : {std::size_t{0}, std::size_t{1} << 30}) {
    Mesh mesh(transport, size);
    GroupOptions options;
    options.threshold_bytes = threshold;
    options.checksum_all = threshold == 0;
    mesh.run(
        [&](Group& group) {
          for (const std::size_t length : {0u, 1u, 3u, 17u, 255u, 2048u, 9001u, 40000u}) {
            std::vector<float> data = vector_of(group.rank(), length);
            const Status status = group.all_reduce_sum(data);
            ASSERT_TRUE(status) << status.error().message;
            EXPECT_TRUE(same_bits(data, expected_sum(size, length)))
                << length << " floats, rank " << group.rank() << ", threshold " << threshold;
          }
        },
        options);
  }
}

TEST_P(MeshTest, AllReduce_MovesMoreThanTheTransportBuffersBothWaysAtOnce) {
  const auto transport = GetParam().transport;
  const int size = GetParam().size;
  const std::size_t length = (1u << 20) / sizeof(float) + 5;
  for (const std::size_t threshold : {std::size_t{0}, std::size_t{1} << 30}) {
    Mesh mesh(transport, size);
    GroupOptions options;
    options.threshold_bytes = threshold;
    mesh.run(
        [&](Group& group) {
          std::vector<float> data = vector_of(group.rank(), length);
          const Status status = group.all_reduce_sum(data);
          ASSERT_TRUE(status) << status.error().message;
          EXPECT_TRUE(same_bits(data, expected_sum(size, length)));
        },
        options);
  }
}

TEST_P(MeshTest, GathersAndBroadcasts_DeliverEveryPartOfUnequalLength) {
  const auto transport = GetParam().transport;
  const int size = GetParam().size;
  Mesh mesh(transport, size);
  mesh.run([&, ranks = size](Group& group) {
    std::vector<std::size_t> counts;
    std::vector<std::byte> expected;
    for (Rank rank = 0; rank < ranks; ++rank) {
      // Rank 1 has nothing; the last one more than a ring holds.
      const auto count = rank == 1 ? 0u : rank == ranks - 1 ? 300001u : 10u + unsigned(rank);
      counts.push_back(count);
      expected.insert(expected.end(), count, std::byte(rank + 1));
    }
    const std::vector<std::byte> mine(counts[static_cast<std::size_t>(group.rank())],
                                      std::byte(group.rank() + 1));
    group.set_step(3);
    std::vector<std::byte> gathered(expected.size());
    Status status = group.all_gather(mine, counts, gathered);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(gathered, expected);

    for (Rank root = 0; root < ranks; ++root) {
      const bool is_root = group.rank() == root;
      std::vector<std::byte> at_root(is_root ? expected.size() : 0);
      status = group.gather(root, mine, counts, at_root);
      ASSERT_TRUE(status) << status.error().message;
      if (is_root) {
        EXPECT_EQ(at_root, expected);
      }

      std::vector<std::byte> message(70000, is_root ? std::byte(root + 1) : std::byte{0});
      status = group.broadcast(root, message);
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_EQ(message, std::vector<std::byte>(message.size(), std::byte(root + 1)));
    }
    EXPECT_EQ(group.totals().operations, 1u + 2u * unsigned(ranks));
  });
}

// Pipeline stages: subsets work among themselves, in different numbers, between operations of all.
TEST_P(MeshTest, OperationsOfSubsets_LeaveTheOtherRanksAlone) {
  const auto transport = GetParam().transport;
  const int size = GetParam().size;
  Mesh mesh(transport, size);
  mesh.run([&, ranks = size](Group& group) {
    const int first_count = (ranks + 1) / 2;
    const bool in_first = group.rank() < first_count;
    const RankSet own = in_first ? RankSet::range(0, first_count)
                                 : RankSet::range(first_count, ranks - first_count);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < (in_first ? 3 : 1); ++i) {
        std::vector<float> data(3000, 1.0f + static_cast<float>(group.rank()));
        const Status summed = group.all_reduce_sum(data, own);
        ASSERT_TRUE(summed) << summed.error().message;
        float expected = 0;
        for (Rank rank = 0; rank < ranks; ++rank)
          if (own.contains(rank)) expected += 1.0f + static_cast<float>(rank);
        ASSERT_EQ(data, std::vector<float>(data.size(), expected));
      }
      // Rank 0 hands over to the second half.
      if (ranks > first_count && (group.rank() == 0 || !in_first)) {
        std::vector<std::byte> message(500, group.rank() == 0 ? std::byte(round) : std::byte{255});
        const Status sent =
            group.broadcast(0, message, RankSet::range(first_count, ranks - first_count).with(0));
        ASSERT_TRUE(sent) << sent.error().message;
        ASSERT_EQ(message, std::vector<std::byte>(message.size(), std::byte(round)));
      }
      std::vector<float> all(16, 1.0f);
      const Status status = group.all_reduce_sum(all);
      ASSERT_TRUE(status) << status.error().message;
      ASSERT_EQ(all, std::vector<float>(all.size(), static_cast<float>(ranks)));
    }
  });
}

TEST_P(MeshTest, ManyShortOperations_KeepTheirOrder) {
  const auto transport = GetParam().transport;
  const int size = GetParam().size;
  Mesh mesh(transport, size);
  mesh.run([&, ranks = size](Group& group) {
    for (int step = 0; step < 200; ++step) {
      group.set_step(static_cast<std::uint64_t>(step));
      std::vector<float> data(64, static_cast<float>(step + group.rank()));
      const Status status = group.all_reduce_sum(data);
      ASSERT_TRUE(status) << status.error().message;
      const auto sum = static_cast<float>(step * ranks + ranks * (ranks - 1) / 2);
      ASSERT_EQ(data, std::vector<float>(data.size(), sum)) << "step " << step;
    }
  });
}

}  // namespace
}  // namespace sinew::testing
