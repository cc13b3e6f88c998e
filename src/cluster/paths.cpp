#include "cluster/paths.h"

#include <fmt/format.h>

#include <algorithm>

namespace sinew {
namespace {

// Probes jitter: at the same kind only a round trip of less than half is worth a change.
constexpr int kRoundTripGain = 2;

std::string text_of(const Address& a) {
  return fmt::format("{} {}:{}", path_kind_name(a.kind), a.host, a.port);
}

}  // namespace

bool Paths::fresh(Time now, const Probe& probe) const {
  return probe.last_good && now - *probe.last_good <= timing_.path_fresh;
}

bool Paths::better(const std::pair<const Address, Probe>& a,
                   const std::pair<const Address, Probe>& b) const {
  if (a.first.kind != b.first.kind) return a.first.kind < b.first.kind;
  return a.second.round_trip * kRoundTripGain < b.second.round_trip;
}

void Paths::connected(Time now, const NodeId& peer, const Address& address,
                      NodeCore::Actions& actions) {
  Peer& p = peers_[peer];
  p.connected = true;
  // A connection is as good as a probe that came back.
  if (!p.probes.contains(address)) probed(now, peer, address, Time{});
  if (p.in_use != address) {
    const bool first = !p.in_use;
    p.in_use = address;
    if (!first)
      actions.events.push_back({EventKind::kPathChanged, peer,
                                fmt::format("now over {}: connected anew", text_of(address))});
  }
  p.lost_reported = false;
}

void Paths::disconnected(const NodeId& peer) {
  if (const auto it = peers_.find(peer); it != peers_.end()) it->second.connected = false;
}

void Paths::probed(Time now, const NodeId& peer, const Address& address,
                   std::optional<Time> round_trip) {
  Peer& p = peers_[peer];
  if (!p.probes.contains(address) && p.probes.size() >= 2 * kMemberAddressesMax) return;
  Probe& probe = p.probes[address];
  if (!round_trip) {
    probe.last_good.reset();
    return;
  }
  if (!fresh(now, probe)) probe.good_since = now;
  probe.last_good = now;
  probe.round_trip = *round_trip;
}

void Paths::use(const NodeId& id, Peer& peer, const Address& address, const char* why,
                NodeCore::Actions& actions) {
  if (peer.in_use)
    actions.events.push_back(
        {EventKind::kPathChanged, id,
         fmt::format("from {} to {}: {}", text_of(*peer.in_use), text_of(address), why)});
  peer.in_use = address;
  peer.lost_reported = false;
  actions.paths.push_back({id, address});
}

void Paths::decide(Time now, const NodeId& id, Peer& peer, NodeCore::Actions& actions) {
  const std::pair<const Address, Probe>* best = nullptr;
  for (const auto& entry : peer.probes)
    if (fresh(now, entry.second) && (!best || better(entry, *best))) best = &entry;
  const auto current = peer.in_use ? peer.probes.find(*peer.in_use) : peer.probes.end();
  if (current != peer.probes.end() && fresh(now, current->second)) {
    if (better(*best, *current) && now - best->second.good_since >= timing_.path_better_after)
      use(id, peer, best->first, "a better path is good again", actions);
    return;
  }
  if (best) return use(id, peer, best->first, "the one before does not answer", actions);
  if (peer.in_use && !peer.connected && !peer.lost_reported) {
    peer.lost_reported = true;
    actions.events.push_back(
        {EventKind::kPathLost, id,
         fmt::format("no address answers, the last one was {}", text_of(*peer.in_use))});
  }
}

void Paths::tick(Time now, const std::vector<NodeId>& members, NodeCore::Actions& actions) {
  std::erase_if(peers_, [&](const auto& entry) {
    return !entry.second.connected && !std::ranges::binary_search(members, entry.first);
  });
  for (auto& [id, peer] : peers_) decide(now, id, peer, actions);
}

std::optional<Address> Paths::in_use(const NodeId& peer) const {
  const auto it = peers_.find(peer);
  return it == peers_.end() ? std::nullopt : it->second.in_use;
}

}  // namespace sinew
