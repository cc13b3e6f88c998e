#include "agent/interfaces.h"

#include <gtest/gtest.h>

namespace sinew {
namespace {

TEST(Interfaces, KindsAreGuessedFromWhatTheSystemSays) {
  const auto kind = [](InterfaceFacts facts) { return guess_kind(facts); };
  EXPECT_EQ(kind({.name = "lo", .loopback = true}), PathKind::kLoopback);
  EXPECT_EQ(kind({.name = "thunderbolt0"}), PathKind::kThunderbolt);
  EXPECT_EQ(kind({.name = "eth9", .driver = "thunderbolt-net"}), PathKind::kThunderbolt);
  EXPECT_EQ(kind({.name = "enp3s0", .driver = "ixgbe"}), PathKind::kEthernet);
  EXPECT_EQ(kind({.name = "veth1"}), PathKind::kEthernet);
  EXPECT_EQ(kind({.name = "wlp2s0"}), PathKind::kWifi);
  EXPECT_EQ(kind({.name = "eth1", .wireless = true}), PathKind::kWifi);
  EXPECT_EQ(kind({.name = "tailscale0", .tunnel = true}), PathKind::kVpn);
  EXPECT_EQ(kind({.name = "wg0"}), PathKind::kVpn);
  EXPECT_EQ(kind({.name = "docker0"}), PathKind::kUnknown);
  EXPECT_EQ(kind({.name = "bridge0", .apple = true}), PathKind::kThunderbolt);
  EXPECT_EQ(kind({.name = "en0", .apple = true}), PathKind::kEthernet);
  EXPECT_EQ(kind({.name = "utun3", .apple = true}), PathKind::kVpn);
  EXPECT_EQ(kind({.name = "awdl0", .apple = true}), PathKind::kUnknown);
}

TEST(Interfaces, NoAddressIsLoopbackAndTheBestKindIsFirst) {
  const std::vector<Address> own = own_addresses(7);
  EXPECT_LE(own.size(), kMemberAddressesMax);
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_NE(own[i].kind, PathKind::kLoopback);
    EXPECT_EQ(own[i].port, 7);
    EXPECT_FALSE(own[i].host.empty());
    if (i > 0) {
      EXPECT_LE(own[i - 1].kind, own[i].kind);
    }
  }
}

}  // namespace
}  // namespace sinew
