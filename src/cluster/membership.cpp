#include "cluster/membership.h"

#include <algorithm>

namespace sinew {
namespace {

constexpr std::size_t kGravesMax = 256;

std::string label_of(const Member& m) {
  return fmt::format("{} ({})", m.name, m.id.short_name());
}

}  // namespace

Membership::Membership(Member self, const ClusterTiming& timing)
    : self_(std::move(self)), timing_(timing) {}

void Membership::advance(Time now) {
  // Beats are due far more often than this: the node itself was stopped, and so was its hearing.
  if (const Time gap = now - now_; gap > timing_.suspect_after)
    for (auto& [id, peer] : peers_) peer.view.last_sign += gap;
  now_ = std::max(now_, now);
}

BeatMessage Membership::next_beat(std::vector<PeerLink> hears) {
  BeatMessage message;
  message.self = {self_, ++beat_, std::move(hears)};
  for (const auto& [id, peer] : peers_)
    message.beats.push_back({id, peer.view.member.incarnation, peer.beat});
  for (std::size_t i = 0; i < std::min(kNewsMax, peers_.size()); ++i) {
    const auto it =
        std::next(peers_.begin(), static_cast<std::ptrdiff_t>(news_from_ % peers_.size()));
    message.news.push_back({it->second.view.member, it->second.beat, it->second.view.hears});
    ++news_from_;
  }
  return message;
}

void Membership::on_beat(const NodeId& from, const BeatMessage& message,
                         std::vector<Event>& events) {
  if (message.self.member.id != from) {
    events.push_back({EventKind::kRefused, from, "a beat in the name of another node"});
    return;
  }
  learn(message.self, true, events);
  for (const MemberNews& news : message.news) learn(news, false, events);
  for (const MemberBeat& beat : message.beats) learn_beat(beat, events);
}

void Membership::note_self(const Member& other, std::vector<Event>& events) {
  // An earlier life of this very agent is no twin.
  if (other.nonce == self_.nonce || other.incarnation < self_.incarnation || duplicated_) return;
  duplicated_ = true;
  events.push_back(
      {EventKind::kDuplicateId, self_.id,
       fmt::format("this machine and '{}' have the same id {}: one state folder was copied from "
                   "the other; remove it on one of them; this node takes no part until then",
                   other.name, self_.id.short_name())});
}

void Membership::report_twin(Peer& peer, const Member& other, std::vector<Event>& events) {
  if (peer.twin_reported) return;
  peer.twin_reported = true;
  events.push_back({EventKind::kDuplicateId, other.id,
                    fmt::format("two live machines, '{}' and '{}', have the id {}: remove the "
                                "state folder on one of them",
                                peer.view.member.name, other.name, other.id.short_name())});
}

void Membership::learn(const MemberNews& news, bool direct, std::vector<Event>& events) {
  const Member& member = news.member;
  if (member.id == self_.id) return note_self(member, events);
  const auto it = peers_.find(member.id);
  if (it == peers_.end()) {
    admit(news, events);
  } else {
    Peer& peer = it->second;
    const Member& known = peer.view.member;
    if (member.incarnation < known.incarnation) {
      // Late messages of the earlier life end soon; a machine that goes on talking lives.
      if (direct && now_ - peer.replaced_at > timing_.gone_after) report_twin(peer, member, events);
      return;
    }
    if (member.incarnation > known.incarnation) {
      events.push_back(
          {EventKind::kRestarted, member.id, fmt::format("{} was restarted", label_of(member))});
      peer = Peer{};
      peer.view.member = member;
      peer.view.hears = news.hears;
      peer.view.last_sign = peer.alive_since = peer.replaced_at = now_;
      peer.beat = news.beat;
    } else if (member.nonce != known.nonce) {
      return report_twin(peer, member, events);
    } else if (news.beat > peer.beat) {
      peer.view.member = member;
      peer.view.hears = news.hears;
      revive(peer, news.beat, events);
    }
  }
  if (const auto known = peers_.find(member.id);
      direct && known != peers_.end() && known->second.view.member.nonce == member.nonce)
    known->second.heard_at = now_;
}

void Membership::learn_beat(const MemberBeat& beat, std::vector<Event>& events) {
  const auto it = peers_.find(beat.id);
  // A new node, or a new life of one, is admitted only with all it says of itself.
  if (it == peers_.end() || it->second.view.member.incarnation != beat.incarnation) return;
  if (beat.beat > it->second.beat) revive(it->second, beat.beat, events);
}

void Membership::admit(const MemberNews& news, std::vector<Event>& events) {
  const Member& member = news.member;
  if (const auto grave = graves_.find(member.id); grave != graves_.end()) {
    const Grave& g = grave->second;
    if (std::pair(member.incarnation, news.beat) <= std::pair(g.incarnation, g.beat)) return;
    graves_.erase(grave);
  }
  if (peers_.size() + 1 >= kMembersMax) {
    events.push_back({EventKind::kRefused, member.id,
                      fmt::format("{} was not admitted: a cluster has at most {} nodes",
                                  label_of(member), kMembersMax)});
    return;
  }
  Peer& peer = peers_[member.id];
  peer.view.member = member;
  peer.view.hears = news.hears;
  peer.view.last_sign = peer.alive_since = peer.replaced_at = now_;
  peer.beat = news.beat;
  events.push_back({EventKind::kJoined, member.id, fmt::format("{} joined", label_of(member))});
}

void Membership::revive(Peer& peer, std::uint64_t beat, std::vector<Event>& events) {
  peer.beat = beat;
  peer.view.last_sign = now_;
  if (peer.view.liveness == Liveness::kAlive) return;
  peer.view.liveness = Liveness::kAlive;
  peer.alive_since = now_;
  events.push_back({EventKind::kRecovered, peer.view.member.id,
                    fmt::format("{} is heard again", label_of(peer.view.member))});
}

void Membership::on_leave(const NodeId& from, std::uint64_t incarnation,
                          std::vector<Event>& events) {
  const auto it = peers_.find(from);
  if (it == peers_.end() || it->second.view.member.incarnation != incarnation) return;
  events.push_back(
      {EventKind::kGone, from, fmt::format("{} has left", label_of(it->second.view.member))});
  // Its last beats may still be on their way through others.
  it->second.beat = UINT64_MAX;
  bury(from);
}

void Membership::bury(const NodeId& id) {
  const auto it = peers_.find(id);
  if (graves_.size() >= kGravesMax)
    graves_.erase(std::ranges::min_element(graves_, {},
                                           [](const auto& entry) { return entry.second.buried; }));
  graves_[id] = {it->second.view.member.incarnation, it->second.beat, now_};
  peers_.erase(it);
}

void Membership::tick(std::vector<Event>& events) {
  std::vector<NodeId> gone;
  for (auto& [id, peer] : peers_) {
    MemberView& view = peer.view;
    view.heard = peer.heard_at && now_ - *peer.heard_at < timing_.suspect_after;
    const Time silent = now_ - view.last_sign;
    const double seconds = std::chrono::duration<double>(silent).count();
    if (silent >= timing_.gone_after) {
      events.push_back({EventKind::kGone, id,
                        fmt::format("{} is gone: no sign of life for {:.1f} s",
                                    label_of(view.member), seconds)});
      gone.push_back(id);
    } else if (silent >= timing_.suspect_after && view.liveness == Liveness::kAlive) {
      view.liveness = Liveness::kSuspect;
      events.push_back({EventKind::kSuspect, id,
                        fmt::format("{} has given no sign of life for {:.1f} s",
                                    label_of(view.member), seconds)});
    }
  }
  for (const NodeId& id : gone) bury(id);
}

std::vector<MemberView> Membership::views() const {
  std::vector<MemberView> views;
  for (const auto& [id, peer] : peers_) views.push_back(peer.view);
  return views;
}

std::vector<NodeId> Membership::ids() const {
  std::vector<NodeId> ids;
  for (const auto& [id, peer] : peers_) ids.push_back(id);
  return ids;
}

std::vector<NodeId> Membership::heard_ids() const {
  std::vector<NodeId> ids;
  for (const auto& [id, peer] : peers_)
    if (peer.view.heard) ids.push_back(id);
  return ids;
}

std::optional<Time> Membership::alive_for(const NodeId& id) const {
  const auto it = peers_.find(id);
  if (it == peers_.end() || it->second.view.liveness != Liveness::kAlive) return std::nullopt;
  return now_ - it->second.alive_since;
}

std::string Membership::label(const NodeId& id) const {
  if (id == self_.id) return label_of(self_);
  const auto it = peers_.find(id);
  return it == peers_.end() ? id.short_name() : label_of(it->second.view.member);
}

}  // namespace sinew
