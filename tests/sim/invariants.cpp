// What must always hold in the simulated cluster.
#include <fmt/format.h>

#include <algorithm>

#include "sim/world.h"

namespace sinew::sim {

// One coordinator in each term, and one at each moment of true time, also while it is stopped.
void World::check_now() {
  const Node* holder = nullptr;
  for (Node& node : nodes_) {
    if (!node.up) continue;
    const Epoch epoch = node.core->state().last_epoch;
    if (epoch < node.last_epoch_agreed)
      violate(fmt::format("{}: the agreed epoch goes back from {} to {}", node.member.name,
                          node.last_epoch_agreed, epoch));
    node.last_epoch_agreed = epoch;
    if (!node.core->coordinates(local(node))) continue;
    const auto [it, is_new] = holder_of_term_.emplace(node.core->term(), node.id);
    if (!is_new && it->second != node.id)
      violate(fmt::format("two nodes coordinate in term {}", node.core->term()));
    if (holder)
      violate(fmt::format("{} and {} coordinate at once", holder->member.name, node.member.name));
    holder = &node;
  }
}

// Epochs only grow, and an epoch means one thing on all nodes.
void World::check_started(std::size_t index, const NodeCore::StartModel& start) {
  Node& node = nodes_[index];
  const Epoch epoch = start.assignment.epoch;
  Epoch& last = node.last_started[start.model.id];
  if (epoch <= last)
    violate(fmt::format("{} starts epoch {} after {}", node.member.name, epoch, last));
  last = epoch;
  const auto [it, is_new] = epochs_.emplace(epoch, start.assignment);
  if (is_new) ++outcome_.epochs;
  if (it->second != start.assignment) violate(fmt::format("epoch {} means two things", epoch));
  if (!start.assignment.share_of(node.id)) violate("a node starts a rank it has no share for");
}

// A node is in touch while some live node reaches it that is itself joined with a majority of the
// voters, both ways. Nodes that are stopped or dead reach nobody.
void World::note_contact() {
  for (const Node& node : nodes_)
    if (node.up && node.core->state_tag() > newest_tag_) {
      newest_tag_ = node.core->state_tag();
      voters_ = node.core->state().voters;
    }
  const auto joined = [&](std::size_t a, std::size_t b) {
    return a == b ||
           (links_[a][b].cuts == 0 && links_[b][a].cuts == 0 && nodes_[b].up && !nodes_[b].paused);
  };
  for (std::size_t hub = 0; hub < nodes_.size(); ++hub) {
    if (!nodes_[hub].up || nodes_[hub].paused) continue;
    const auto reached =
        std::ranges::count_if(voters_, [&](const NodeId& id) { return joined(hub, index_of(id)); });
    if (static_cast<std::size_t>(reached) * 2 <= voters_.size()) continue;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (i == hub || links_[hub][i].cuts == 0) nodes_[i].last_contact = now_;
  }
}

std::string World::ghosts() {
  for (const Node& node : nodes_) {
    if (!node.up) continue;
    for (const MemberView& v : node.core->members()) {
      const Node& other = nodes_[index_of(v.member.id)];
      if (!other.up || other.member.incarnation != v.member.incarnation)
        return fmt::format("{} still has a ghost of {}", node.member.name, v.member.name);
    }
  }
  return {};
}

std::string World::unfinished() {
  std::optional<NodeId> coordinator;
  std::size_t live = 0;
  for (const Node& node : nodes_) live += node.up ? 1 : 0;
  const ClusterState* state = nullptr;
  for (const Node& node : nodes_) {
    if (!node.up) {
      if (!node.dead_for_good) return node.member.name + " is down";
      continue;
    }
    const auto views = node.core->members();
    if (views.size() != live)
      return fmt::format("{} knows {} of {} members", node.member.name, views.size(), live);
    for (const MemberView& v : views)
      if (v.liveness != Liveness::kAlive || !v.heard)
        return fmt::format("{} does not hear {}", node.member.name, v.member.name);
    const auto holder = node.core->coordinator(local(node));
    if (!holder) return node.member.name + " knows no coordinator";
    if (coordinator && *coordinator != *holder) return "two coordinators are followed";
    coordinator = holder;
    if (state && *state != node.core->state()) return "the agreed state differs";
    state = &node.core->state();
  }
  for (const ModelState& model : state->models) {
    if (!model.assignment) return model.desired.name + " is not placed";
    for (const NodeShare& share : model.assignment->shares) {
      const Node& node = nodes_[index_of(share.node)];
      const auto rank = node.ranks.find(model.desired.id);
      if (rank == node.ranks.end() || rank->second.assignment != *model.assignment)
        return fmt::format("{} does not run its share of {}", node.member.name, model.desired.name);
    }
  }
  if (state->models.size() != models_.size()) return "a model was forgotten";
  for (std::size_t id = 0; id < requests_.size(); ++id)
    if (!requests_[id].ended)
      return fmt::format("request {} of {} has not ended", id,
                         nodes_[requests_[id].node].member.name);
  return {};
}

}  // namespace sinew::sim
