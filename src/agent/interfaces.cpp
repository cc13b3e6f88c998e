#include "agent/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

namespace sinew {
namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view p) { return name.starts_with(p); });
}

InterfaceFacts read_facts(const ifaddrs& entry) {
  InterfaceFacts facts;
  facts.name = entry.ifa_name;
  facts.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  facts.tunnel = (entry.ifa_flags & IFF_POINTOPOINT) != 0;
#ifdef __APPLE__
  facts.apple = true;
#else
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path("/sys/class/net") / facts.name;
  facts.wireless = std::filesystem::exists(folder / "wireless", error) ||
                   std::filesystem::exists(folder / "phy80211", error);
  facts.tunnel = facts.tunnel || std::filesystem::exists(folder / "tun_flags", error);
  facts.driver =
      std::filesystem::read_symlink(folder / "device" / "driver", error).filename().string();
#endif
  return facts;
}

std::string numeric_host(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    if (!IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr))
      ::inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
  }
  return text.data();
}

}  // namespace

PathKind guess_kind(const InterfaceFacts& facts) {
  if (facts.loopback) return PathKind::kLoopback;
  if (facts.driver == "thunderbolt-net" || starts_with_any(facts.name, {"thunderbolt"}))
    return PathKind::kThunderbolt;
  if (facts.tunnel ||
      starts_with_any(facts.name, {"tun", "tap", "wg", "utun", "ipsec", "ppp", "tailscale", "zt"}))
    return PathKind::kVpn;
  if (facts.apple) {
    if (facts.name.starts_with("bridge")) return PathKind::kThunderbolt;
    return facts.name.starts_with("en") ? PathKind::kEthernet : PathKind::kUnknown;
  }
  if (facts.wireless || facts.name.starts_with("wl")) return PathKind::kWifi;
  if (starts_with_any(facts.name, {"docker", "br-", "virbr", "cni"}) && facts.driver.empty())
    return PathKind::kUnknown;
  return PathKind::kEthernet;
}

std::vector<Address> own_addresses(std::uint16_t port) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Address> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string host = numeric_host(*entry->ifa_addr);
    const PathKind kind = guess_kind(read_facts(*entry));
    if (host.empty() || kind == PathKind::kLoopback) continue;
    found.push_back({kind, false, host, port});
  }
  std::ranges::stable_sort(found, {}, [](const Address& address) { return address.kind; });
  if (found.size() > kMemberAddressesMax) found.resize(kMemberAddressesMax);
  return found;
}

}  // namespace sinew
