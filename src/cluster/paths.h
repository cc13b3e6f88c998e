#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cluster/node_core.h"

namespace sinew {

// Which address to use to each peer. Probes tell which ones answer; a better kind, or at the same
// kind a much shorter round trip, is used once it has been good for `path_better_after`; a dead one
// is left at once. Every change is an event.
class Paths {
 public:
  explicit Paths(const ClusterTiming& timing) : timing_(timing) {}

  void connected(Time now, const NodeId& peer, const Address& address, NodeCore::Actions& actions);
  void disconnected(const NodeId& peer);
  void probed(Time now, const NodeId& peer, const Address& address, std::optional<Time> round_trip);
  // Decides anew; forgets peers that are not among `members`.
  void tick(Time now, const std::vector<NodeId>& members, NodeCore::Actions& actions);

  std::optional<Address> in_use(const NodeId& peer) const;

 private:
  struct Probe {
    std::optional<Time> last_good;
    Time good_since{};
    Time round_trip{};
  };
  struct Peer {
    std::map<Address, Probe> probes;
    std::optional<Address> in_use;
    bool connected = false;
    bool lost_reported = false;
  };

  bool fresh(Time now, const Probe& probe) const;
  bool better(const std::pair<const Address, Probe>& a,
              const std::pair<const Address, Probe>& b) const;
  void decide(Time now, const NodeId& id, Peer& peer, NodeCore::Actions& actions);
  void use(const NodeId& id, Peer& peer, const Address& address, const char* why,
           NodeCore::Actions& actions);

  ClusterTiming timing_;
  std::map<NodeId, Peer> peers_;
};

}  // namespace sinew
