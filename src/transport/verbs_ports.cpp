#include "transport/verbs_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "transport/verbs_explain.h"

namespace sinew {
namespace {

// A name or a vector longer than that is no offer of ours.
constexpr std::size_t kDeviceNameMax = 64;

// Better ones first: the side channel's own address, then any IPv4 address, routed packets before
// those of one segment.
int gid_rank(const VerbsGidEntry& entry, const VerbsGid& side) {
  if (entry.gid == VerbsGid{}) return -1;
  if (entry.type == VerbsGidType::kInfiniBand) return entry.index == 0 ? 1 : -1;
  if (!entry.gid.is_ipv4_mapped()) return -1;
  return (entry.gid == side ? 4 : 0) + (entry.type == VerbsGidType::kRoceV2 ? 2 : 1);
}

Result<VerbsGidEntry> choose_gid(const std::string& device,
                                 const std::vector<VerbsGidEntry>& entries,
                                 const VerbsOptions& options, const VerbsGid& side) {
  if (options.gid_index) {
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
      return entry.index == *options.gid_index;
    });
    if (found != entries.end()) return *found;
    return fail(ErrorCode::kUnsupported, "verbs: {} has no address (GID) of index {}", device,
                *options.gid_index);
  }
  const auto best = std::max_element(
      entries.begin(), entries.end(),
      [&](const auto& a, const auto& b) { return gid_rank(a, side) < gid_rank(b, side); });
  if (best != entries.end() && gid_rank(*best, side) > 0) return *best;
  return fail(
      ErrorCode::kUnsupported,
      "verbs: {} has no address of IPv4 among its {} GIDs: give its interface a static IPv4 "
      "address, or name an index (--verbs-gid-index)",
      device, entries.size());
}

// Closes the device it opened to look at it.
class OpenedDevice {
 public:
  OpenedDevice(VerbsProvider& provider, VerbsDeviceHandle* handle)
      : provider_(provider), handle_(handle) {}
  ~OpenedDevice() { provider_.close_device(handle_); }
  OpenedDevice(const OpenedDevice&) = delete;
  OpenedDevice& operator=(const OpenedDevice&) = delete;

 private:
  VerbsProvider& provider_;  // outlives the look
  VerbsDeviceHandle* handle_;
};

Result<VerbsPortOffer> look_at_device(VerbsProvider& provider, const std::string& name,
                                      const VerbsOptions& options, const VerbsGid& side) {
  const auto handle = provider.open_device(name);
  if (!handle) return fail(explain_verbs(VerbsCall::kOpenDevice, handle.error(), name));
  const OpenedDevice opened(provider, *handle);
  const auto port = provider.query_port(*handle);
  if (!port) return fail(explain_verbs(VerbsCall::kQueryPort, port.error(), name));
  if (!port->active) {
    return fail(ErrorCode::kUnsupported,
                "verbs: the port of {} is down: check the cable, and that RDMA is enabled at its "
                "other end",
                name);
  }
  const auto gids = provider.query_gids(*handle);
  if (!gids) return fail(explain_verbs(VerbsCall::kQueryGids, gids.error(), name));
  SINEW_ASSIGN(const VerbsGidEntry gid, choose_gid(name, *gids, options, side));
  return VerbsPortOffer{name, *port, gid, gid.gid == side};
}

bool one_subnet(const VerbsPortOffer& a, const VerbsPortOffer& b) {
  return a.port.layer == b.port.layer && a.gid.type == b.gid.type &&
         a.gid.prefix_bits == b.gid.prefix_bits &&
         a.gid.gid.shares_prefix(b.gid.gid, a.gid.prefix_bits);
}

std::string list_ports(const std::vector<VerbsPortOffer>& ports) {
  std::string text;
  for (const VerbsPortOffer& port : ports) {
    text += fmt::format("{}{} ({} {})", text.empty() ? "" : ", ", port.device,
                        verbs_layer_name(port.port.layer), to_string(port.gid.gid));
  }
  return text;
}

}  // namespace

void VerbsOffer::put(WireWriter& writer) const {
  writer.put(qp_type).put(slot_bytes).put(named_devices);
  writer.put(static_cast<std::uint32_t>(ports.size()));
  for (const VerbsPortOffer& offer : ports) {
    writer.put(std::string_view(offer.device).substr(0, kDeviceNameMax));
    writer.put(offer.port.layer).put(offer.port.lid).put(offer.port.mtu_bytes);
    writer.put_array(std::span<const std::uint8_t>(offer.gid.gid.bytes));
    writer.put(offer.gid.type).put(static_cast<std::uint32_t>(offer.gid.prefix_bits));
    writer.put(offer.on_side_channel);
  }
}

VerbsOffer VerbsOffer::get(WireReader& reader) {
  VerbsOffer offer;
  offer.qp_type = reader.get<VerbsQpType>();
  offer.slot_bytes = reader.get<std::uint32_t>();
  offer.named_devices = reader.get<std::uint8_t>() != 0;
  const std::size_t count = std::min<std::size_t>(reader.get<std::uint32_t>(), kVerbsPortsMax);
  for (std::size_t i = 0; i < count; ++i) {
    VerbsPortOffer port;
    port.device = reader.get_string();
    port.port.active = true;
    port.port.layer = reader.get<VerbsLayer>();
    port.port.lid = reader.get<std::uint16_t>();
    port.port.mtu_bytes = reader.get<std::uint32_t>();
    const std::vector<std::uint8_t> gid = reader.get_array<std::uint8_t>();
    std::copy_n(gid.begin(), std::min(gid.size(), port.gid.gid.bytes.size()),
                port.gid.gid.bytes.begin());
    port.gid.type = reader.get<VerbsGidType>();
    port.gid.prefix_bits = std::min(reader.get<std::uint32_t>(), 128u);
    port.on_side_channel = reader.get<std::uint8_t>() != 0;
    offer.ports.push_back(std::move(port));
  }
  return offer;
}

VerbsGid local_gid(const Socket& socket) {
  VerbsGid gid;
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return gid;
  if (bound.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(bound).sin6_addr;
    VerbsGid mapped;
    std::memcpy(mapped.bytes.data(), &address, mapped.bytes.size());
    return mapped.is_ipv4_mapped() ? mapped : gid;
  }
  if (bound.ss_family != AF_INET) return gid;
  gid.bytes[10] = gid.bytes[11] = 0xff;
  const auto& address = reinterpret_cast<const sockaddr_in&>(bound).sin_addr;
  std::memcpy(gid.bytes.data() + 12, &address, 4);
  return gid;
}

Result<std::vector<VerbsPortOffer>> find_verbs_ports(VerbsProvider& provider,
                                                     const VerbsOptions& options,
                                                     const VerbsGid& side) {
  const auto names = provider.device_names();
  if (!names) return fail(explain_verbs(VerbsCall::kListDevices, names.error(), ""));
  if (names->empty()) {
    return fail(ErrorCode::kUnsupported, "verbs: this machine has no RDMA device: {}",
                provider.no_device_hint());
  }
  for (const std::string& wanted : options.devices) {
    if (std::find(names->begin(), names->end(), wanted) != names->end()) continue;
    return fail(ErrorCode::kUnsupported, "verbs: there is no device {}; there are: {}", wanted,
                fmt::join(*names, ", "));
  }
  std::vector<VerbsPortOffer> ports;
  std::string refused;
  for (const std::string& name : options.devices.empty() ? *names : options.devices) {
    if (ports.size() == kVerbsPortsMax) break;
    auto port = look_at_device(provider, name, options, side);
    if (port) {
      ports.push_back(std::move(*port));
      continue;
    }
    // A device that the user has named must work.
    if (!options.devices.empty()) return fail(std::move(port).error());
    if (refused.empty()) refused = port.error().message;
  }
  if (ports.empty()) return fail(Error{ErrorCode::kUnsupported, refused, {}});
  const bool known = std::any_of(ports.begin(), ports.end(),
                                 [](const auto& port) { return port.on_side_channel; });
  if (options.devices.empty() && !known) {
    return fail(
        ErrorCode::kUnsupported,
        "verbs: no RDMA device has the address {} over which the peer is reached (there are "
        "{}): give the ranks addresses of the RDMA interfaces, or name a device "
        "(--verbs-device)",
        to_string(side), list_ports(ports));
  }
  return ports;
}

Result<std::vector<std::pair<std::size_t, std::size_t>>> pair_verbs_ports(
    const VerbsOffer& lower, const VerbsOffer& higher) {
  if (lower.qp_type != higher.qp_type) {
    return fail(ErrorCode::kUnsupported,
                "verbs: one side uses {} queue pairs, the other {}: give all ranks the same "
                "--verbs-qp",
                verbs_qp_type_name(lower.qp_type), verbs_qp_type_name(higher.qp_type));
  }
  if (lower.slot_bytes != higher.slot_bytes) {
    return fail(ErrorCode::kUnsupported,
                "verbs: one side has slots of {} bytes, the other of {}: give all ranks the same "
                "--verbs-slot",
                lower.slot_bytes, higher.slot_bytes);
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  std::vector<bool> used(higher.ports.size());
  const auto join = [&](std::size_t i, std::size_t j) {
    pairs.emplace_back(i, j);
    used[j] = true;
  };
  for (std::size_t i = 0; i < lower.ports.size() && pairs.empty(); ++i) {
    for (std::size_t j = 0; j < higher.ports.size() && pairs.empty(); ++j) {
      const bool both = lower.ports[i].on_side_channel && higher.ports[j].on_side_channel;
      if (both && lower.ports[i].port.layer == higher.ports[j].port.layer) join(i, j);
    }
  }
  for (std::size_t i = 0; i < lower.ports.size() && pairs.size() < kVerbsRailsMax; ++i) {
    if (!pairs.empty() && pairs.front().first == i) continue;
    for (std::size_t j = 0; j < higher.ports.size(); ++j) {
      if (used[j] || !one_subnet(lower.ports[i], higher.ports[j])) continue;
      join(i, j);
      break;
    }
  }
  // Two devices that the user has named belong together, whatever their subnets.
  const bool both_named = lower.named_devices && higher.named_devices && lower.ports.size() == 1 &&
                          higher.ports.size() == 1;
  if (pairs.empty() && both_named && lower.ports[0].port.layer == higher.ports[0].port.layer) {
    join(0, 0);
  }
  if (!pairs.empty()) return pairs;
  return fail(ErrorCode::kUnsupported,
              "verbs: no two ports are of one kind and subnet: {} at one end, {} at the other: one "
              "subnet for "
              "each cable, the same on both ends",
              list_ports(lower.ports), list_ports(higher.ports));
}

}  // namespace sinew
