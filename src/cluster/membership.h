#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cluster/message.h"
#include "cluster/node.h"
#include "cluster/node_core.h"

namespace sinew {

// Who is in the cluster. Every node beats to every other and passes on whose beats it has seen, so
// that knowing one member is enough, and a node that one cannot hear is alive if others hear it.
// Evidence of life is a counter that only the living raise (van Renesse, Minsky and Hayden 1998):
// news of the dead never looks new.
class Membership {
 public:
  Membership(Member self, const ClusterTiming& timing);

  void start(Time now) { now_ = now; }
  // Must come before any other call for an event at `now`: a node that has slept itself takes
  // its own sleep for nobody's silence.
  void advance(Time now);
  // Raises this node's beat. `hears` are the peers heard directly with the path in use.
  BeatMessage next_beat(std::vector<PeerLink> hears);
  void on_beat(const NodeId& from, const BeatMessage& message, std::vector<Event>& events);
  void on_leave(const NodeId& from, std::uint64_t incarnation, std::vector<Event>& events);
  // Suspects and buries.
  void tick(std::vector<Event>& events);
  void update_self(Member self) { self_ = std::move(self); }

  const Member& self() const { return self_; }
  // Another machine lives under this node's id.
  bool duplicated() const { return duplicated_; }
  std::vector<MemberView> views() const;  // without this node
  std::vector<NodeId> ids() const;        // likewise
  std::vector<NodeId> heard_ids() const;  // those whose beats arrive directly
  // How long a member has been alive without a pause.
  std::optional<Time> alive_for(const NodeId& id) const;
  std::string label(const NodeId& id) const;

 private:
  struct Peer {
    MemberView view;
    std::uint64_t beat = 0;
    Time alive_since{};
    std::optional<Time> heard_at;
    Time replaced_at{};  // when this incarnation took the place of another
    bool twin_reported = false;
  };
  struct Grave {
    std::uint64_t incarnation = 0;
    std::uint64_t beat = 0;
    Time buried{};
  };

  void learn(const MemberNews& news, bool direct, std::vector<Event>& events);
  void learn_beat(const MemberBeat& beat, std::vector<Event>& events);
  void note_self(const Member& other, std::vector<Event>& events);
  void admit(const MemberNews& news, std::vector<Event>& events);
  void revive(Peer& peer, std::uint64_t beat, std::vector<Event>& events);
  void report_twin(Peer& peer, const Member& other, std::vector<Event>& events);
  void bury(const NodeId& id);

  Member self_;
  ClusterTiming timing_;
  Time now_{};
  std::uint64_t beat_ = 0;
  bool duplicated_ = false;
  std::size_t news_from_ = 0;  // whose turn it is to be told in full
  std::map<NodeId, Peer> peers_;
  std::map<NodeId, Grave> graves_;
};

}  // namespace sinew
