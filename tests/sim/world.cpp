#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace sinew::sim {
namespace {

constexpr std::array<const char*, kMutationCount> kMutationNames{
    "none",         "long_lease",  "forgetful_disk", "slow_burial", "raw_tokens",
    "lost_request", "serve_alone", "deaf_node",      "old_disks"};

}  // namespace

std::string mutation_name(Mutation mutation) {
  return kMutationNames[static_cast<std::size_t>(mutation)];
}

Status Disk::save(ByteSpan block) {
  const auto write = [&] {
    if (!forgetful || content.empty()) content.assign(block.begin(), block.end());
  };
  switch (fault) {
    case Fault::kNone:
      write();
      return {};
    case Fault::kErrorAfterWrite:
      write();
      return fail(ErrorCode::kIo, "the simulated disk has failed after the write");
    case Fault::kError:
      return fail(ErrorCode::kIo, "the simulated disk has failed");
    case Fault::kPowerAfter:
      write();
      break;
    case Fault::kPowerBefore:
      break;
  }
  power_lost = true;
  return fail(ErrorCode::kIo, "the simulated machine has lost power");
}

World::World(const Settings& settings) : settings_(settings), random_(settings.seed) {
  const std::size_t count = 3 + random_() % 5;
  nodes_.resize(count);
  links_.assign(count, std::vector<Link>(count));
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Node& node = nodes_[i];
    node.id.bytes.fill(static_cast<std::uint8_t>(random_()));
    node.id.bytes[15] = static_cast<std::uint8_t>(i + 1);
    node.member.id = node.id;
    node.member.name = fmt::format("node-{}", i);
    node.member.version = "sim";
    node.member.memory_bytes = (1 + random_() % 3) << 30;
    node.member.memory_available_bytes = node.member.memory_bytes;
    node.member.addresses = {{PathKind::kEthernet, false, fmt::format("10.0.0.{}", i + 1), 1}};
    node.base_local = between(1s, 1000s);
    node.disk.forgetful = settings.mutation == Mutation::kForgetfulDisk;
    total += node.member.memory_available_bytes;
  }
  for (std::uint8_t i = 0; i < 2; ++i) {
    DesiredModel model;
    model.id.bytes.fill(static_cast<std::uint8_t>(i + 1));
    model.name = fmt::format("model-{}", i);
    // Both together fit the cluster less its largest node, and hardly less than that.
    model.needs = {total / 6, 1u << 20, 64, 32};
    // One runs on a single node, which may find itself alone.
    if (i == 1) model.needs = {512u << 20, 1u << 20, 1, 32};
    model.on_loss = random_() % 3 == 0 ? OnLoss::kWait : OnLoss::kReplace;
    model.on_return = random_() % 2 == 0 ? OnReturn::kWiden : OnReturn::kStay;
    model.wait_ms = 4000;
    models_.push_back(model);
  }
}

Time World::between(Time least, Time most) {
  return least +
         Time{static_cast<Time::rep>(chance() * static_cast<double>((most - least).count()))};
}

void World::at(Time when, std::function<void()> act) {
  events_.push({std::max(when, now_), ++order_, std::move(act)});
}

Time World::local(const Node& node) const {
  const auto passed = static_cast<double>((now_ - node.base_true).count());
  return node.base_local + Time{static_cast<Time::rep>(passed * node.rate)};
}

void World::set_rate(std::size_t index, double rate) {
  Node& node = nodes_[index];
  node.base_local = local(node);
  node.base_true = now_;
  node.rate = rate;
}

void World::say_line(const std::string& line) const {
  fmt::print("{:9.3f} {}\n", std::chrono::duration<double>(now_).count(), line);
}

void World::violate(const std::string& what) {
  if (outcome_.violation.empty()) {
    outcome_.violation =
        fmt::format("at {:.3f} s: {}", std::chrono::duration<double>(now_).count(), what);
    say("VIOLATION {}", what);
  }
}

std::size_t World::index_of(const NodeId& id) const {
  return static_cast<std::size_t>(id.bytes[15] - 1);
}

void World::boot(std::size_t index) {
  Node& node = nodes_[index];
  if (node.up || node.dead_for_good) return;
  ++node.life;
  node.up = true;
  node.paused = false;
  node.held.clear();
  node.timer_at = Time::max();
  node.member.incarnation += 1;
  node.member.nonce = random_();
  node.agreed = {};
  node.last_epoch_agreed = 0;
  NodeCore::Options options;
  options.self = node.member;
  options.found = index == 0 && node.member.incarnation == 1;
  options.seed = random_();
  options.timing.voter_stable = 2s;
  options.timing.voter_replace_after = 10s;
  if (settings_.mutation == Mutation::kLongLease) options.timing.drift = -1.0;
  if (settings_.mutation == Mutation::kSlowBurial) options.timing.gone_after = 100s;
  if (settings_.mutation == Mutation::kServeAlone) options.timing.serve_alone = 1000s;
  auto core = NodeCore::create(options, node.disk.content, node.disk);
  if (!core) return violate("a node cannot start: " + core.error().message);
  node.core = std::move(*core);
  say("{} starts, incarnation {}", node.member.name, node.member.incarnation);
  RequestLog::Settings log_settings;
  if (settings_.mutation == Mutation::kLostRequest) log_settings.recover_max = 1000s;
  for (const DesiredModel& model : models_)
    node.logs.insert_or_assign(model.id, RequestLog(log_settings));
  node.log_epoch.clear();
  node.last_contact = now_;
  drive(index, [](NodeCore& c, Time now) { return c.start(now); });
  if (node.up) engine_tick(index);
}

void World::crash(std::size_t index) {
  Node& node = nodes_[index];
  if (!node.up) return;
  say("{} crashes", node.member.name);
  ++node.life;
  node.up = node.paused = false;
  node.held.clear();
  node.core.reset();
  node.ranks.clear();
  node.last_started.clear();
  node.disk.power_lost = false;
  node.disk.fault = Disk::Fault::kNone;
  client_gone(index);
}

void World::pause(std::size_t index) {
  if (!nodes_[index].up || nodes_[index].paused) return;
  say("{} is stopped", nodes_[index].member.name);
  nodes_[index].paused = true;
}

void World::resume(std::size_t index) {
  Node& node = nodes_[index];
  if (!node.paused) return;
  say("{} goes on", node.member.name);
  node.paused = false;
  std::deque<std::function<void()>> held = std::exchange(node.held, {});
  for (auto& act : held)
    at(now_ + between(0s, 2ms), [this, index, act = std::move(act), life = node.life] {
      if (nodes_[index].life == life) act();
    });
}

void World::drive(std::size_t index,
                  const std::function<NodeCore::Actions(NodeCore&, Time)>& call) {
  Node& node = nodes_[index];
  if (!node.up) return;
  NodeCore::Actions actions = call(*node.core, local(node));
  if (node.disk.power_lost) return crash(index);
  carry_out(index, std::move(actions));
  set_timer(index);
}

void World::carry_out(std::size_t index, NodeCore::Actions actions) {
  Node& node = nodes_[index];
  for (const Event& event : actions.events) {
    say("  {}: {}: {}", node.member.name, event_kind_name(event.kind), event.text);
    if (event.kind == EventKind::kElected) ++outcome_.elections;
    if (event.kind == EventKind::kRefused || event.kind == EventKind::kDuplicateId)
      violate("unexpected event: " + event.text);
  }
  for (const auto& stop : actions.stops) stop_rank(index, stop);
  for (const auto& start : actions.starts) {
    check_started(index, start);
    start_rank(index, start);
  }
  for (auto& answer : actions.answers) answers_[answer.command] = std::move(answer.status);
  for (auto& send : actions.sends) {
    const std::size_t to = index_of(send.to);
    auto bytes = std::make_shared<std::vector<std::byte>>(std::move(send.message));
    transmit(index, to, [this, to, from = node.id, bytes] {
      drive(to, [&](NodeCore& c, Time now) { return c.received(now, from, *bytes); });
    });
  }
}

void World::set_timer(std::size_t index) {
  Node& node = nodes_[index];
  if (!node.up) return;
  const Time wait = std::max(node.core->next_tick() - local(node), Time{1ms});
  const Time due =
      now_ + Time{static_cast<Time::rep>(static_cast<double>(wait.count()) / node.rate)};
  if (due >= node.timer_at) return;
  node.timer_at = due;
  at(due, [this, index, due, life = node.life] {
    Node& n = nodes_[index];
    if (!n.up || n.life != life || n.timer_at != due) return;
    n.timer_at = Time::max();
    auto act = [this, index, life] {
      if (nodes_[index].life == life)
        drive(index, [](NodeCore& c, Time now) { return c.tick(now); });
    };
    if (n.paused) {
      n.held.emplace_back(act);
    } else {
      act();
    }
  });
}

void World::transmit(std::size_t from, std::size_t to, std::function<void()> arrive) {
  const Link& link = links_[from][to];
  if (link.cuts > 0 || chance() < loss_) return;
  const int copies = chance() < twice_ ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Time delay = between(100us, 3ms);
    if (chance() < 0.02) delay += between(0ms, 100ms);
    if (link.slow > 0) delay += between(50ms, 700ms);
    at(now_ + delay, [this, to, arrive] {
      if (!nodes_[to].up) return;
      if (nodes_[to].paused) {
        nodes_[to].held.push_back(arrive);
      } else {
        arrive();
      }
    });
  }
}

// Discovery: now and then two nodes that do not know each other connect. In the first seconds
// everyone knows node 0 alone.
void World::introduce() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].up || nodes_[i].paused) continue;
    std::set<NodeId> known;
    for (const MemberView& v : nodes_[i].core->members()) known.insert(v.member.id);
    for (std::size_t j = 0; j < nodes_.size(); ++j) {
      if (i == j || known.contains(nodes_[j].id) || links_[i][j].cuts > 0 ||
          links_[j][i].cuts > 0 || !nodes_[j].up || (now_ < 5s && i != 0 && j != 0))
        continue;
      drive(i, [&](NodeCore& c, Time now) {
        return c.connected(now, nodes_[j].id, nodes_[j].member.addresses.front());
      });
      if (!nodes_[i].up) break;
    }
  }
  at(now_ + 700ms, [this] { introduce(); });
}

Outcome World::run() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    set_rate(i, 1.0 + (chance() - 0.5) * 0.019);
    at(between(0s, 2s), [this, i] { boot(i); });
  }
  at(500ms, [this] { introduce(); });
  at(9s, [this] {
    for (const DesiredModel& model : models_) {
      const std::uint64_t number = ++commands_;
      drive(random_() % nodes_.size(), [&](NodeCore& c, Time now) {
        return c.command(now, number, NodeCore::LoadModel{model});
      });
    }
  });
  at(12s, [this] {
    for (std::uint64_t i = 1; i <= commands_; ++i)
      if (!answers_.contains(i) || !answers_[i]) violate("a model was not loaded");
    for (Node& node : nodes_) node.old_disk = node.disk.content;
    client_asks();
  });
  schedule_faults();
  for (Time t = 100ms; t < kFaultsEnd + kConvergeMax + 1s; t += 100ms)
    at(t, [this] { note_contact(); });
  std::string left = "all";
  Time next_check = kFaultsEnd + kGhostMax;
  while (!events_.empty() && outcome_.violation.empty()) {
    // The order does not depend on what is moved out.
    Pending next = std::move(const_cast<Pending&>(events_.top()));
    events_.pop();
    now_ = next.at;
    next.act();
    ++outcome_.events;
    check_now();
    if (now_ < next_check) continue;
    next_check += 500ms;
    if (const std::string ghost = ghosts(); !ghost.empty()) violate(ghost);
    left = unfinished();
    if (left.empty()) break;
    if (now_ > kFaultsEnd + kConvergeMax) violate("not converged: " + left);
  }
  if (outcome_.violation.empty() && !left.empty()) violate("the simulation stands still: " + left);
  if (outcome_.violation.empty() && outcome_.faults_at_once < 2)
    violate("the seed has no two faults at once");
  return outcome_;
}

Outcome run(const Settings& settings) {
  return World(settings).run();
}

}  // namespace sinew::sim
