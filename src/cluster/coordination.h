#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cluster/message.h"
#include "cluster/node.h"

namespace sinew {

// A node's view of the one lease of a cluster and of the small value that its holder writes. The
// node campaigns and renews by itself as time passes; nothing here waits. Terms grow with each
// holder and fence all that it orders. Two implementations: MajorityLease among the agents
// themselves, and an etcd for fleets (at the edge).
class Coordination {
 public:
  struct Outgoing {
    NodeId to;
    LeaseMessage message;
  };

  virtual ~Coordination() = default;
  // Campaigns, renews, lets a lease end. `members` are all live nodes but this one: they are told
  // who holds the lease and what the value is.
  virtual std::vector<Outgoing> tick(Time now, const std::vector<NodeId>& members) = 0;
  virtual Time next_tick() const = 0;

  // True only while this node holds the lease and a majority has confirmed the value under its
  // term. Ask again before every act: a process may have slept in between.
  virtual bool holds(Time now) const = 0;
  // Who holds it, as far as this node has heard within the lease's length.
  virtual std::optional<NodeId> holder(Time now) const = 0;
  virtual std::uint64_t term() const = 0;

  // The last value that is known to be agreed, and its tag; nothing before this node has heard it.
  virtual const std::optional<ClusterState>& agreed() const = 0;
  virtual ValueTag agreed_tag() const = 0;
  // Replaces the value whose tag is `expected`: agreed when agreed_tag() has grown. kCancelled if
  // this node does not hold the lease, an earlier write is under way or the tag is another one;
  // errors of the store.
  virtual Status compare_and_swap(Time now, ValueTag expected, ClusterState next) = 0;
};

}  // namespace sinew
