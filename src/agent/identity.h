#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/state_folder.h"
#include "base/result.h"
#include "cluster/node.h"

namespace sinew {

struct NodeIdentity {
  NodeId id;
  std::uint64_t incarnation = 0;
  std::uint64_t nonce = 0;  // random for each start
  // The folder came from another machine: the id in it was left to that one.
  bool copied = false;
  NodeId left;  // where `copied`
};

// What tells machines apart, each hashed: first the system's id or the hardware's uuid, then the
// addresses of the network cards. A copied disk brings the first along (Linux), never the cards; a
// card may be added or taken away. $SINEW_MACHINE stands in for all of it, where a container has
// none of its own (and in tests).
using Fingerprint = std::vector<std::string>;
Fingerprint machine_fingerprint();
// The first parts are equal, and a card is in both, or one of them has none.
bool same_machine(const Fingerprint& a, const Fingerprint& b);

// The identity in the folder, drawn at the first start, with the next incarnation: on the disk
// before this returns. Call with the folder's lock held. kInvalidFile if the file is damaged.
Result<NodeIdentity> take_identity(const StateFolder& folder, const Fingerprint& fingerprint);

}  // namespace sinew
