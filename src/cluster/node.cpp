#include "cluster/node.h"

#include <fmt/format.h>

namespace sinew {

std::string NodeId::short_name() const {
  return fmt::format("{:02x}{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2], bytes[3]);
}

std::string ModelId::short_name() const {
  return fmt::format("{:02x}{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2], bytes[3]);
}

std::string path_kind_name(PathKind kind) {
  switch (kind) {
    case PathKind::kLoopback:
      return "loopback";
    case PathKind::kThunderbolt:
      return "Thunderbolt";
    case PathKind::kEthernet:
      return "Ethernet";
    case PathKind::kWifi:
      return "Wi-Fi";
    case PathKind::kVpn:
      return "VPN";
    case PathKind::kUnknown:
      return "unknown";
  }
  return "unknown";
}

}  // namespace sinew
