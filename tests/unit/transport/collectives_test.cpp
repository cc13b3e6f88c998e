// Groups that measure their links and agree, over the real transports, as meshes and with the links
// of a ring alone. What each algorithm computes is tested in unit/collective/algorithms_test.cpp.
#include <cmath>
#include <cstring>
#include <tuple>

#include "unit/transport/ranks.h"

namespace sinew::testing {
namespace {

using Case = std::tuple<Transport, bool, int>;  // transport, ring, ranks

class FormedGroupTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, FormedGroupTest,
                         ::testing::Combine(::testing::Values(Transport::kShm, Transport::kTcp),
                                            ::testing::Bool(), ::testing::Values(2, 3, 4, 5)));

bool linked(bool ring, int size, Rank a, Rank b) {
  const int apart = a < b ? b - a : a - b;
  return !ring || apart == 1 || apart == size - 1;
}

std::vector<float> vector_of(Rank rank, std::size_t length) {
  std::vector<float> data(length);
  for (std::size_t i = 0; i < length; ++i)
    data[i] = std::ldexp(static_cast<float>((i * 7919 + static_cast<std::size_t>(rank)) % 257),
                         static_cast<int>(i % 5) - 6);
  return data;
}

// By the definition of collective/mesh_group.h.
std::vector<float> expected_sum(int size, std::size_t length, WireType wire) {
  std::vector<std::byte> bytes(length * wire_width(wire));
  const auto round = [&](std::vector<float>& values) {
    EXPECT_TRUE(to_wire(values, wire, bytes.data()));
    from_wire(bytes.data(), wire, values);
  };
  std::vector<float> sum;
  for (Rank rank = 0; rank < size; ++rank) {
    std::vector<float> next = vector_of(rank, length);
    round(next);
    if (rank == 0) sum.assign(length, 0.0f);
    for (std::size_t i = 0; i < length; ++i) sum[i] = rank == 0 ? next[i] : sum[i] + next[i];
  }
  round(sum);
  return sum;
}

TEST_P(FormedGroupTest, AllReduce_GivesTheBitsOfTheDefinitionForEveryWireType) {
  const auto [transport, ring, size] = GetParam();
  for (const WireType wire : {WireType::kF32, WireType::kBf16, WireType::kF16}) {
    Mesh mesh(transport, size);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank, ring = ring, size = size] {
        auto links = mesh.links(rank);
        ASSERT_TRUE(links) << links.error().message;
        for (Rank peer = 0; peer < size; ++peer)
          if (peer != rank && !linked(ring, size, rank, peer))
            (*links)[static_cast<std::size_t>(peer)].reset();
        GroupOptions options;
        options.wire = wire;
        const auto group = form_group(identity_of(rank, size), std::move(*links), options);
        ASSERT_TRUE(group) << group.error().message;
        for (const std::size_t length : {0u, 1u, 3u, 7168u, 9001u, 300007u}) {
          std::vector<float> data = vector_of(rank, length);
          const Status status = (*group)->all_reduce_sum(data);
          ASSERT_TRUE(status) << status.error().message;
          const std::vector<float> expected = expected_sum(size, length, wire);
          EXPECT_TRUE(length == 0 ||
                      std::memcmp(data.data(), expected.data(), length * sizeof(float)) == 0)
              << length << " values as " << wire_type_name(wire);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace sinew::testing
