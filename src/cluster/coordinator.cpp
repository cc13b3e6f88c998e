#include "cluster/coordinator.h"

#include <algorithm>
#include <set>

#include "base/limits.h"

namespace sinew {
namespace {

constexpr std::size_t kRequestsMax = 64;
constexpr std::size_t kVotersTarget = 5;
// An epoch that fails sooner is a failed start: the next one waits longer each time.
constexpr Time kEarlyFailure = std::chrono::seconds{10};
constexpr Time kRetryFirst = std::chrono::milliseconds{250};
constexpr Time kRetryMax = std::chrono::seconds{8};

bool hears(const std::vector<PeerLink>& links, const NodeId& peer) {
  return std::ranges::find(links, peer, &PeerLink::peer) != links.end();
}

// A node that could hold a share, with what it says of its links.
struct Candidate {
  PlacementNode node;
  std::vector<PeerLink> hears;
};

// All live nodes, this one first. What this node hears is the only thing it need not be told.
std::vector<Candidate> candidates(const Membership& members) {
  std::vector<Candidate> result;
  const Member& self = members.self();
  Candidate own{{self.id, self.name, self.incarnation, self.memory_available_bytes, 0}, {}};
  for (const MemberView& v : members.views()) {
    if (v.heard) own.hears.push_back({v.member.id, PathKind::kUnknown});
    if (v.liveness != Liveness::kAlive) continue;
    // The kind of a link is known at both of its ends.
    for (const PeerLink& link : v.hears)
      if (link.peer == self.id && v.heard) own.hears.back().kind = link.kind;
    result.push_back(
        {{v.member.id, v.member.name, v.member.incarnation, v.member.memory_available_bytes, 0},
         v.hears});
  }
  result.insert(result.begin(), std::move(own));
  return result;
}

bool linked(const Candidate& a, const Candidate& b) {
  return hears(a.hears, b.node.id) && hears(b.hears, a.node.id);
}

// Nodes that all hear each other, taken greedily from those with the most links: the ranks of a
// model need every link.
std::vector<Candidate> connected_nodes(std::vector<Candidate> all) {
  std::vector<std::pair<std::size_t, Candidate>> ranked;
  for (const Candidate& c : all)
    ranked.emplace_back(
        std::ranges::count_if(all, [&](const Candidate& o) { return linked(c, o); }), c);
  std::ranges::sort(ranked, [](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first > b.first;
    if (a.second.node.available_bytes != b.second.node.available_bytes)
      return a.second.node.available_bytes > b.second.node.available_bytes;
    return a.second.node.id < b.second.node.id;
  });
  std::vector<Candidate> chosen;
  for (auto& entry : ranked) {
    Candidate& c = entry.second;
    if (std::ranges::all_of(chosen, [&](const Candidate& o) { return linked(c, o); }))
      chosen.push_back(std::move(c));
  }
  return chosen;
}

bool fast(const Candidate& a, const Candidate& b) {
  return std::ranges::any_of(a.hears, [&](const PeerLink& link) {
    return link.peer == b.node.id && link.kind == PathKind::kThunderbolt;
  });
}

// Nodes joined by Thunderbolt form a stage of their own, if there are such nodes and others.
void set_groups(std::vector<Candidate>& nodes) {
  std::vector<std::uint32_t> group(nodes.size());
  for (std::uint32_t i = 0; i < nodes.size(); ++i) group[i] = i;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (fast(nodes[i], nodes[j]) || fast(nodes[j], nodes[i]))
        std::ranges::replace(group, group[i], group[j]);
  const bool any_fast = std::set(group.begin(), group.end()).size() < nodes.size();
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].node.group = any_fast ? group[i] : 0;
}

std::vector<PlacementNode> usable_nodes(const Membership& members, const ClusterState& state,
                                        const ModelId& model) {
  std::vector<Candidate> nodes = connected_nodes(candidates(members));
  set_groups(nodes);
  std::vector<PlacementNode> result;
  for (Candidate& c : nodes) {
    for (const ModelState& other : state.models) {
      const NodeShare* share = nullptr;
      if (other.desired.id != model && other.assignment)
        share = other.assignment->share_of(c.node.id);
      if (share) c.node.available_bytes -= std::min(c.node.available_bytes, share->bytes);
    }
    result.push_back(std::move(c.node));
  }
  return result;
}

// Why an assignment cannot go on; empty if it can.
std::string broken(const Membership& members, const Assignment& assignment) {
  const std::vector<Candidate> all = candidates(members);
  std::vector<const Candidate*> group;
  for (const NodeShare& share : assignment.shares) {
    const auto it =
        std::ranges::find_if(all, [&](const Candidate& c) { return c.node.id == share.node; });
    if (it == all.end()) return fmt::format("{} is lost", members.label(share.node));
    if (it->node.incarnation != share.incarnation)
      return fmt::format("{} was restarted", members.label(share.node));
    for (const Candidate* other : group)
      if (!linked(*it, *other))
        return fmt::format("{} and {} do not hear each other", members.label(share.node),
                           members.label(other->node.id));
    group.push_back(&*it);
  }
  return {};
}

}  // namespace

void Coordinator::begin(Time now) {
  began_ = now;
  memory_.clear();
  voter_missing_.clear();
  waiting_.clear();
  replies_.clear();
  requests_.clear();
}

void Coordinator::request(Request request) {
  const bool known = std::ranges::any_of(requests_, [&](const Request& r) {
    return r.from == request.from && r.number == request.number && r.number != 0;
  });
  if (!known && requests_.size() < kRequestsMax) requests_.push_back(std::move(request));
}

std::optional<ClusterState> Coordinator::decide(const View& view, const ClusterState& state,
                                                std::vector<Event>& events) {
  ClusterState next = state;
  for (const Request& request : requests_) {
    Reply reply{request.from, {request.number, apply(view, request, next, events)}};
    (reply.reply.status ? waiting_ : replies_).push_back(std::move(reply));
  }
  requests_.clear();
  // A coordinator that has just come up itself does not know yet who else lives.
  const bool settled =
      view.now - began_ >= timing_.beat_every && view.up_for >= timing_.voter_stable;
  if (settled) {
    for (ModelState& model : next.models) review(view, next, model, events);
    mend_voters(view, next, events);
  }
  if (next != state) return next;
  written(true);  // what was asked is so already
  return std::nullopt;
}

void Coordinator::written(bool agreed) {
  for (Reply& reply : waiting_) {
    if (!agreed)
      reply.reply.status = fail(ErrorCode::kCancelled, "the coordinator has changed: ask again");
    replies_.push_back(std::move(reply));
  }
  waiting_.clear();
}

std::vector<Coordinator::Reply> Coordinator::take_replies() {
  return std::exchange(replies_, {});
}

Status Coordinator::apply(const View& view, const Request& request, ClusterState& state,
                          std::vector<Event>& events) {
  if (const auto* load = std::get_if<NodeCore::LoadModel>(&request.command)) {
    SINEW_TRY(check_needs(load->model));
    const auto it = std::ranges::find_if(
        state.models, [&](const ModelState& m) { return m.desired.id == load->model.id; });
    if (it != state.models.end()) {
      it->desired = load->model;
      return {};
    }
    if (state.models.size() >= kLoadedModelsMax)
      return fail(ErrorCode::kUsage, "{} models are loaded already: unload one first",
                  state.models.size());
    // Said at once, with the arithmetic, rather than accepted and never served.
    const auto placed = place_model(load->model, usable_nodes(view.members, state, load->model.id));
    if (!placed) return fail(placed.error());
    state.models.push_back({load->model, std::nullopt});
    return {};
  }
  if (const auto* unload = std::get_if<NodeCore::UnloadModel>(&request.command)) {
    const auto it = std::ranges::find_if(
        state.models, [&](const ModelState& m) { return m.desired.id == unload->model; });
    if (it == state.models.end()) return {};
    if (it->assignment) end_epoch(view, *it, "it was unloaded", events);
    memory_.erase(unload->model);
    state.models.erase(it);
    return {};
  }
  fail_epoch(view, std::get<NodeCore::FailEpoch>(request.command), state, events);
  return {};
}

void Coordinator::fail_epoch(const View& view, const NodeCore::FailEpoch& failed,
                             ClusterState& state, std::vector<Event>& events) {
  for (ModelState& model : state.models) {
    // Said by every rank of the epoch; only the first one counts.
    if (model.desired.id != failed.model || !model.assignment ||
        model.assignment->epoch != failed.epoch)
      continue;
    Memory& memory = memory_[failed.model];
    memory.failures = view.now - memory.started < kEarlyFailure ? memory.failures + 1 : 0;
    if (memory.failures > 0)
      memory.not_before =
          view.now + std::min(kRetryMax, kRetryFirst * (1 << std::min(memory.failures, 8)));
    end_epoch(view, model,
              fmt::format("{}{}", failed.reason,
                          failed.culprit ? " on " + view.members.label(*failed.culprit) : ""),
              events);
  }
}

void Coordinator::end_epoch(const View& view, ModelState& model, const std::string& why,
                            std::vector<Event>& events) {
  Memory& memory = memory_[model.desired.id];
  memory.lost_at = view.now;
  memory.before.clear();
  for (const NodeShare& share : model.assignment->shares) memory.before.push_back(share.node);
  events.push_back(
      {EventKind::kEpochEnded, view.members.self().id,
       fmt::format("epoch {} of {} ends: {}", model.assignment->epoch, model.desired.name, why)});
  model.assignment.reset();
}

void Coordinator::start_epoch(const View& view, ClusterState& state, ModelState& model,
                              Assignment assignment, std::vector<Event>& events) {
  assignment.epoch = ++state.last_epoch;
  assignment.term = view.term;
  Memory& memory = memory_[model.desired.id];
  memory.started = view.now;
  memory.not_placed.clear();
  std::string nodes;
  for (const NodeShare& share : assignment.shares)
    nodes += fmt::format("{}{} {} units", nodes.empty() ? "" : ", ", view.members.label(share.node),
                         share.units);
  events.push_back(
      {EventKind::kEpochStarted, view.members.self().id,
       fmt::format("epoch {} of {}: {}", assignment.epoch, model.desired.name, nodes)});
  model.assignment = std::move(assignment);
}

void Coordinator::review(const View& view, ClusterState& state, ModelState& model,
                         std::vector<Event>& events) {
  if (!model.assignment) return place(view, state, model, events);
  if (const std::string why = broken(view.members, *model.assignment); !why.empty()) {
    end_epoch(view, model, why, events);
    return place(view, state, model, events);
  }
  if (model.desired.on_return != OnReturn::kWiden) return;
  std::vector<PlacementNode> nodes = usable_nodes(view.members, state, model.desired.id);
  // A node that has just come back may go again; those in use count as they are.
  std::erase_if(nodes, [&](const PlacementNode& n) {
    return !model.assignment->share_of(n.id) && n.id != view.members.self().id &&
           view.members.alive_for(n.id).value_or(Time{}) < timing_.voter_stable;
  });
  auto wider = place_model(model.desired, std::move(nodes));
  if (!wider || wider->shares.size() <= model.assignment->shares.size()) return;
  end_epoch(view, model, "more nodes can take part", events);
  start_epoch(view, state, model, std::move(*wider), events);
}

void Coordinator::place(const View& view, ClusterState& state, ModelState& model,
                        std::vector<Event>& events) {
  Memory& memory = memory_[model.desired.id];
  if (view.now < memory.not_before) return;
  std::vector<PlacementNode> nodes = usable_nodes(view.members, state, model.desired.id);
  const auto wait = std::chrono::milliseconds(model.desired.wait_ms);
  if (model.desired.on_loss == OnLoss::kWait && view.now - memory.lost_at < wait) {
    const bool all_back = std::ranges::all_of(memory.before, [&](const NodeId& id) {
      return std::ranges::find(nodes, id, &PlacementNode::id) != nodes.end();
    });
    if (!all_back) return;
  }
  auto placed = place_model(model.desired, std::move(nodes));
  if (placed) return start_epoch(view, state, model, std::move(*placed), events);
  if (memory.not_placed == placed.error().message) return;
  memory.not_placed = placed.error().message;
  events.push_back({EventKind::kNotPlaced, view.members.self().id, placed.error().message});
}

void Coordinator::mend_voters(const View& view, ClusterState& state, std::vector<Event>& events) {
  std::vector<NodeId>& voters = state.voters;
  const NodeId self = view.members.self().id;
  const auto is_voter = [&](const NodeId& id) {
    return std::ranges::find(voters, id) != voters.end();
  };
  std::vector<NodeId> fresh;
  for (const MemberView& v : view.members.views())
    if (!is_voter(v.member.id) && v.heard && hears(v.hears, self) &&
        view.members.alive_for(v.member.id).value_or(Time{}) >= timing_.voter_stable)
      fresh.push_back(v.member.id);
  std::size_t alive = 0;
  std::optional<NodeId> lost;
  for (const NodeId& id : voters) {
    if (id == self || view.members.alive_for(id)) {
      ++alive;
      voter_missing_.erase(id);
    } else if (view.now - voter_missing_.try_emplace(id, view.now).first->second >=
               timing_.voter_replace_after) {
      lost = id;
    }
  }
  // Sets of odd size only: one more voter that nobody needs is one more that may be missed. An even
  // set is a step between two odd ones.
  const bool even = voters.size() % 2 == 0;
  const bool grows = !fresh.empty() && alive + 1 >= (voters.size() + 1) / 2 + 1 &&
                     (even ? voters.size() < kVotersTarget
                           : lost || (voters.size() < kVotersTarget && fresh.size() >= 2));
  std::optional<NodeId> leaves;
  if (even && lost) {
    leaves = lost;
  } else if (grows) {
    voters.push_back(fresh.front());
  } else if (even) {
    const auto it = std::ranges::find_if(
        voters, [&](const NodeId& id) { return id != self && !view.members.alive_for(id); });
    leaves = it != voters.end() ? *it : voters.back() == self ? voters.front() : voters.back();
  } else {
    return;
  }
  if (leaves) std::erase(voters, *leaves);
  std::string names;
  for (const NodeId& id : voters)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", view.members.label(id));
  events.push_back({EventKind::kVoters, self, fmt::format("voters are now {}", names)});
}

}  // namespace sinew
