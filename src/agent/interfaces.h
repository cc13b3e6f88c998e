#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/node.h"

namespace sinew {

// What the system says of a network interface.
struct InterfaceFacts {
  std::string name;
  bool loopback = false;
  bool wireless = false;    // Linux: a folder `wireless` or `phy80211` in sysfs
  bool tunnel = false;      // point to point, or a tun device
  std::string driver = {};  // Linux: the name of its driver, if it has one
  bool apple = false;       // macOS, where names are all there is
};
// Guessed; probing says what a path is worth. On macOS a name does not tell Wi-Fi from
// Ethernet (en0 is either, by model), so all of enN are Ethernet there until somebody asks the
// system's configuration.
PathKind guess_kind(const InterfaceFacts& facts);

// Numeric addresses of this machine that peers may dial, with `port`: no loopback, no IPv6
// link-local address (it says nothing without an interface). At most kMemberAddressesMax, best
// kinds first.
std::vector<Address> own_addresses(std::uint16_t port);

}  // namespace sinew
