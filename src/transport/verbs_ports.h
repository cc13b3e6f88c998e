#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/wire.h"
#include "transport/tcp_socket.h"
#include "transport/verbs_rail.h"

namespace sinew {

// What the user may say about verbs; the same on all ranks but for the devices' names.
struct VerbsOptions {
  // In the order of the cables; empty: the device whose address is that of the side channel, and
  // those that share a subnet with another device of the peer.
  std::vector<std::string> devices;
  std::optional<std::uint32_t> gid_index;
  std::optional<VerbsQpType> qp_type;  // else what the stack does best
  std::uint32_t slot_bytes = 16u << 10;
  // TCP for the whole group where verbs cannot be brought up; else that is an error.
  bool fall_back_to_tcp = false;
};

// A port that may join this rank to a peer, and its address.
struct VerbsPortOffer {
  std::string device;
  VerbsPort port;
  VerbsGidEntry gid;
  bool on_side_channel = false;  // the side channel runs over the same interface
};

// What one side tells the other before anything is set up.
struct VerbsOffer {
  VerbsQpType qp_type = VerbsQpType::kRc;
  std::uint32_t slot_bytes = 0;
  bool named_devices = false;  // by the user
  std::vector<VerbsPortOffer> ports;

  void put(WireWriter& writer) const;
  static VerbsOffer get(WireReader& reader);
};

// The local address of a connected socket as the GID that a port with that address has; all zero
// for IPv6 addresses that are not mapped.
VerbsGid local_gid(const Socket& socket);

// The active ports that this rank can offer over `side`. kUnsupported, with the remedy, if there is
// none.
Result<std::vector<VerbsPortOffer>> find_verbs_ports(VerbsProvider& provider,
                                                     const VerbsOptions& options,
                                                     const VerbsGid& side);

// Which port of `lower` (the rank with the smaller number) is cabled to which of `higher`: a value
// that both sides compute alike. The port of the side channel comes first; cables are told apart by
// their subnets, not by their order. kUnsupported names what does not fit.
Result<std::vector<std::pair<std::size_t, std::size_t>>> pair_verbs_ports(const VerbsOffer& lower,
                                                                          const VerbsOffer& higher);

}  // namespace sinew
