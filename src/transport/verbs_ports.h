#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/wire.h"
#include "transport/tcp_socket.h"
#include "transport/verbs_options.h"
#include "transport/verbs_rail.h"

namespace sinew {

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
