// Ranks, heads and clients of the simulated cluster.
#include <fmt/format.h>

#include <algorithm>

#include "sim/world.h"

namespace sinew::sim {
namespace {

constexpr Time kStepTime = 40ms;
constexpr Time kResend = 250ms;
constexpr Time kStepDeadline = 1500ms;
constexpr Time kLoadDeadline = 4s;
constexpr Time kTick = 20ms;
constexpr std::size_t kActiveMax = 8;

}  // namespace

// A token depends on all before it: one that was lost, doubled or swapped spoils the rest.
TokenId expected_token(RequestId request, std::uint32_t index, TokenId previous) {
  std::uint64_t z = request * 0x9e3779b97f4a7c15ULL + index * 0xbf58476d1ce4e5b9ULL +
                    static_cast<std::uint64_t>(previous);
  z = (z ^ (z >> 29)) * 0x94d049bb133111ebULL;
  return static_cast<TokenId>((z ^ (z >> 32)) & 0x7fffffff);
}

void World::start_rank(std::size_t index, const NodeCore::StartModel& start) {
  say("  {} starts its rank of epoch {}", nodes_[index].member.name, start.assignment.epoch);
  RankState rank;
  rank.assignment = start.assignment;
  rank.ready_at = local(nodes_[index]) + between(100ms, 800ms);
  rank.step_began = local(nodes_[index]);
  nodes_[index].ranks[start.model.id] = std::move(rank);
}

void World::stop_rank(std::size_t index, const NodeCore::StopModel& stop) {
  say("  {} ends its rank of epoch {}", nodes_[index].member.name, stop.epoch);
  const auto it = nodes_[index].ranks.find(stop.model);
  if (it == nodes_[index].ranks.end() || it->second.assignment.epoch != stop.epoch)
    return violate("a rank was stopped that does not run");
  nodes_[index].ranks.erase(it);
}

void World::engine_send(std::size_t from, const NodeId& to, EngineMessage message) {
  const std::size_t index = index_of(to);
  const NodeId sender = nodes_[from].id;
  if (index == from) {
    at(now_ + 10us, [this, index, sender, m = std::move(message), life = nodes_[from].life] {
      if (nodes_[index].life == life && !nodes_[index].paused) engine_received(index, sender, m);
    });
    return;
  }
  transmit(from, index,
           [this, index, sender, m = std::move(message)] { engine_received(index, sender, m); });
}

void World::engine_tick(std::size_t index) {
  Node& node = nodes_[index];
  if (!node.up) return;
  if (!node.paused) {
    for (auto& [model, rank] : node.ranks) {
      if (!rank.ready && local(node) >= rank.ready_at) rank.ready = true;
      if (rank.assignment.shares.front().node == node.id) head_tick(index, model, rank);
    }
    logs_tick(index);
  }
  at(now_ + kTick, [this, index, life = node.life] {
    if (nodes_[index].life == life) engine_tick(index);
  });
}

void World::head_tick(std::size_t index, const ModelId& model, RankState& rank) {
  const Time now = local(nodes_[index]);
  const auto& shares = rank.assignment.shares;
  const bool all_ready = rank.ready && rank.ready_ranks.size() + 1 >= shares.size();
  if (rank.failed) return;
  const bool late = now - rank.step_began >= (all_ready ? kStepDeadline : kLoadDeadline);
  if (late && (!all_ready || !rank.active.empty())) {
    rank.failed = true;
    NodeCore::FailEpoch failed{model, rank.assignment.epoch, std::nullopt, "a rank is late"};
    for (const NodeShare& share : shares)
      if (share.node != nodes_[index].id && !rank.acks.contains(share.node))
        failed.culprit = share.node;
    at(now_, [this, index, failed, number = ++commands_, life = nodes_[index].life] {
      if (nodes_[index].life == life)
        drive(index, [&](NodeCore& c, Time t) { return c.command(t, number, failed); });
    });
    return;
  }
  const bool begun = rank.step > 0 && rank.acks.size() + 1 < shares.size();
  if (begun || !all_ready) {
    if (now - rank.step_sent < kResend) return;
  } else {
    if (rank.step > 0 && now - rank.step_began < kStepTime) return;
    if (rank.step > 0) emit_tokens(index, rank, model);
    if (rank.active.empty()) {
      rank.step = 0;
      rank.step_began = now;
      return;
    }
    ++rank.step;
    rank.step_began = now;
    rank.acks.clear();
  }
  rank.step_sent = now;
  // Step 0 asks a rank whether it is ready.
  for (const NodeShare& share : shares) {
    if (share.node == nodes_[index].id || rank.acks.contains(share.node)) continue;
    EngineMessage message;
    message.kind = EngineMessage::Kind::kStep;
    message.model = model;
    message.epoch = rank.assignment.epoch;
    message.number = rank.step;
    engine_send(index, share.node, std::move(message));
  }
}

void World::emit_tokens(std::size_t index, RankState& rank, const ModelId& model) {
  if (now_ - nodes_[index].last_contact > 6s + 3s)
    violate(fmt::format("{} serves, and has had no contact with a majority for {:.1f} s",
                        nodes_[index].member.name,
                        std::chrono::duration<double>(now_ - nodes_[index].last_contact).count()));
  for (auto it = rank.active.begin(); it != rank.active.end();) {
    auto& [id, active] = *it;
    auto& [asker, begin] = active;
    const auto at_index = static_cast<std::uint32_t>(begin.tokens.size());
    const TokenId previous = begin.tokens.empty() ? 0 : begin.tokens.back();
    begin.tokens.push_back(expected_token(id, at_index, previous));
    EngineMessage message;
    message.kind = EngineMessage::Kind::kToken;
    message.model = model;
    message.epoch = rank.assignment.epoch;
    message.request = id;
    message.index = at_index;
    message.token = begin.tokens.back();
    message.last = begin.tokens.size() >= begin.tokens_max;
    const bool last = message.last;
    engine_send(index, asker, std::move(message));
    it = last ? rank.active.erase(it) : std::next(it);
  }
}

void World::engine_received(std::size_t index, const NodeId& from, const EngineMessage& message) {
  Node& node = nodes_[index];
  if (message.kind == EngineMessage::Kind::kToken) {
    const auto log = node.logs.find(message.model);
    if (log == node.logs.end()) return;
    if (settings_.mutation == Mutation::kRawTokens) {
      deliver(index, {message.request, message.token, message.last, {}});
      return;
    }
    if (const auto delivery = log->second.token(local(node), message.epoch, message.request,
                                                message.index, message.token, message.last))
      deliver(index, *delivery);
    return;
  }
  const auto it = node.ranks.find(message.model);
  if (it == node.ranks.end() || it->second.assignment.epoch != message.epoch) return;
  RankState& rank = it->second;
  switch (message.kind) {
    case EngineMessage::Kind::kStep:
      if (rank.ready) {
        EngineMessage reply = message;
        reply.kind = message.number == 0 ? EngineMessage::Kind::kReady : EngineMessage::Kind::kAck;
        engine_send(index, from, std::move(reply));
      }
      break;
    case EngineMessage::Kind::kReady:
      rank.ready_ranks.insert(from);
      break;
    case EngineMessage::Kind::kAck:
      if (message.number == rank.step) rank.acks.insert(from);
      break;
    case EngineMessage::Kind::kBegin:
      if (settings_.mutation == Mutation::kLostRequest && message.begin.request % 5 == 0) break;
      if (rank.active.size() < kActiveMax || rank.active.contains(message.begin.request))
        rank.active[message.begin.request] = {from, message.begin};
      break;
    case EngineMessage::Kind::kToken:
      break;
  }
}

void World::send_begins(std::size_t index, const ModelId& model,
                        std::vector<RequestLog::Begin> begins) {
  for (const ModelState& m : nodes_[index].core->state().models) {
    if (m.desired.id != model || !m.assignment) continue;
    for (RequestLog::Begin& begin : begins) {
      EngineMessage message;
      message.kind = EngineMessage::Kind::kBegin;
      message.model = model;
      message.epoch = begin.epoch;
      message.begin = std::move(begin);
      engine_send(index, m.assignment->shares.front().node, std::move(message));
    }
  }
}

// The node's API side follows the agreed state.
void World::logs_tick(std::size_t index) {
  Node& node = nodes_[index];
  const Time now = local(node);
  for (auto& [model, log] : node.logs) {
    Epoch epoch = 0;
    for (const ModelState& m : node.core->state().models)
      if (m.desired.id == model && m.assignment) epoch = m.assignment->epoch;
    if (epoch != node.log_epoch[model]) {
      log.epoch_ended(node.log_epoch[model]);
      node.log_epoch[model] = epoch;
      if (epoch > 0) send_begins(index, model, log.epoch_started(now, epoch));
    }
    RequestLog::Due due = log.tick(now);
    send_begins(index, model, std::move(due.again));
    for (const RequestLog::Delivery& failed : due.failed) deliver(index, failed);
  }
}

void World::client_asks() {
  const std::size_t index = random_() % nodes_.size();
  Node& node = nodes_[index];
  if (node.up && !node.paused) {
    Expected expected;
    expected.node = index;
    expected.life = node.life;
    expected.model = models_[random_() % models_.size()].id;
    expected.tokens_max = static_cast<std::uint32_t>(1 + random_() % 60);
    expected.since = now_;
    const RequestId id = requests_.size();
    requests_.push_back(expected);
    ++outcome_.requests;
    auto begin = node.logs.at(expected.model)
                     .submit(local(node), id, {static_cast<TokenId>(id)}, expected.tokens_max);
    if (!begin) return violate("a request was refused: " + begin.error().message);
    if (*begin) send_begins(index, expected.model, {std::move(**begin)});
  }
  if (now_ < kFaultsEnd + 2s) at(now_ + between(50ms, 700ms), [this] { client_asks(); });
}

void World::deliver(std::size_t index, const RequestLog::Delivery& delivery) {
  Expected& expected = requests_[delivery.request];
  if (expected.ended || expected.node != index || expected.life != nodes_[index].life)
    return violate(fmt::format("request {} got a delivery after its end", delivery.request));
  if (delivery.token) {
    ++outcome_.tokens;
    if (*delivery.token != expected_token(delivery.request, expected.received, expected.previous))
      return violate(fmt::format("request {}: token {} is wrong, lost or doubled", delivery.request,
                                 expected.received));
    expected.previous = *delivery.token;
    ++expected.received;
  }
  if (!delivery.ended) return;
  expected.ended = true;
  if (!delivery.status) {
    ++outcome_.failed;
    say("request {} failed: {}", delivery.request, delivery.status.error().message);
  } else {
    ++outcome_.finished;
    if (expected.received != expected.tokens_max)
      violate(fmt::format("request {} ended after {} of {} tokens", delivery.request,
                          expected.received, expected.tokens_max));
  }
}

// The machine that had the clients' connections is gone, and the clients know it.
void World::client_gone(std::size_t index) {
  for (Expected& expected : requests_)
    if (expected.node == index) expected.ended = true;
}

}  // namespace sinew::sim
