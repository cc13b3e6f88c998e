#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cluster/assignment.h"
#include "cluster/node.h"

namespace sinew {

// Where a node keeps its promises: one small block (below kClusterMessageBytesMax), replaced as a
// whole.
class ClusterStore {
 public:
  virtual ~ClusterStore() = default;
  // Returns after the block is on the disk (write, fsync, rename, fsync of the folder). After an
  // error either the old or the new block is there, and no other.
  virtual Status save(ByteSpan block) = 0;
};

enum class EventKind : std::uint8_t {
  kJoined,
  kSuspect,
  kRecovered,  // was suspect, is alive
  kGone,
  kRestarted,     // a higher incarnation took the place of its ghost
  kDuplicateId,   // two live machines have one id
  kRefused,       // a message that breaks the wire format, from `who`
  kPathChanged,   // to a worse or a better path; the text names both
  kPathLost,      // no address of the node answers
  kElected,       // this node coordinates
  kDeposed,       // this node coordinates no more
  kCoordinator,   // another node coordinates, as this node has learned
  kVoters,        // the set of voters changed
  kEpochStarted,  // a model was placed
  kEpochEnded,
  kNotPlaced,  // a model waits; the text has the arithmetic
  kStoreFailed,
};
std::string_view event_kind_name(EventKind kind);

struct Event {
  EventKind kind = EventKind::kJoined;
  NodeId who;
  std::string text;  // one line
};

// One machine's part in the cluster: members, the coordinator's lease, placements. It touches
// nothing: the agent brings events with the time, and carries out the actions that come back.
// Not thread-safe: one thread drives it. `store` outlives it.
class NodeCore {
 public:
  struct Options {
    Member self;
    // Creates a cluster of its own if the store is empty: exactly one node of a cluster, once
    // (`sinew cluster create`). All others learn it from their peers.
    bool found = false;
    ClusterTiming timing;
    std::uint64_t seed = 0;  // for back-off; different on each node
  };
  struct Send {
    NodeId to;
    std::vector<std::byte> message;  // below kClusterMessageBytesMax
  };
  // The path to use to a node from now on. The agent keeps a connection to every member, dials
  // the addresses in order of their kind, and probes all of them.
  struct UsePath {
    NodeId node;
    Address address;
  };
  struct StartModel {
    DesiredModel model;
    Assignment assignment;  // contains this node
  };
  struct StopModel {
    ModelId model;
    Epoch epoch = 0;  // and every earlier one
  };
  struct Answer {
    std::uint64_t command = 0;
    Status status;
  };
  struct Actions {
    std::vector<Send> sends;  // lost without harm where there is no connection
    std::vector<Event> events;
    std::vector<UsePath> paths;
    std::vector<StopModel> stops;  // before the starts
    std::vector<StartModel> starts;
    std::vector<Answer> answers;
  };

  struct LoadModel {
    DesiredModel model;
  };
  struct UnloadModel {
    ModelId model;
  };
  // The engine of an epoch has failed; `culprit` is the node that is said to be at fault.
  struct FailEpoch {
    ModelId model;
    Epoch epoch = 0;
    std::optional<NodeId> culprit;
    std::string reason;
  };
  using Command = std::variant<LoadModel, UnloadModel, FailEpoch>;

  // `stored`: what ClusterStore last saved; empty at the first start. kInvalidFile if it cannot be
  // read: the node must not start with its promises forgotten.
  static Result<std::unique_ptr<NodeCore>> create(Options options, ByteSpan stored,
                                                  ClusterStore& store);
  ~NodeCore();
  NodeCore(const NodeCore&) = delete;
  NodeCore& operator=(const NodeCore&) = delete;

  // Once, before all others. No event may carry a time before that of an earlier one.
  Actions start(Time now);
  // Due at next_tick(); later or earlier does no harm.
  Actions tick(Time now);
  Time next_tick() const;
  // An authenticated connection to `peer` is there over `address`, or has replaced the one before.
  Actions connected(Time now, const NodeId& peer, const Address& address);
  Actions disconnected(Time now, const NodeId& peer);
  // A probe of one address of a peer: the round trip, or nothing if none came back.
  Actions probed(Time now, const NodeId& peer, const Address& address,
                 std::optional<Time> round_trip);
  // `from` is the authenticated peer; a message that claims to be of another is refused.
  Actions received(Time now, const NodeId& from, ByteSpan message);
  // Carried to the coordinator, wherever it is. Answered exactly once, with kDeadline at the
  // latest.
  Actions command(Time now, std::uint64_t number, Command command);
  // Memory, addresses or models of this node have changed. Id, incarnation and nonce stay.
  void update_self(Member self);
  // Says good-bye, so that the others need not wait: the last call.
  Actions leave(Time now);

  // This node first, then by id. Gone nodes are not among them.
  std::vector<MemberView> members() const;
  // The holder of the lease as this node knows it; nothing while it hears none.
  std::optional<NodeId> coordinator(Time now) const;
  // This node holds the lease at this moment.
  bool coordinates(Time now) const;
  std::uint64_t term() const;
  // The last agreed state that this node knows.
  const ClusterState& state() const;
  ValueTag state_tag() const;
  // The address in use to a peer.
  std::optional<Address> path(const NodeId& peer) const;

 private:
  struct Parts;
  explicit NodeCore(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace sinew
