#include "cluster/node_core.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cluster/coordinator.h"
#include "cluster/majority_lease.h"
#include "cluster/membership.h"
#include "cluster/message.h"
#include "cluster/paths.h"

namespace sinew {
namespace {

constexpr std::size_t kCommandsMax = 64;

// Texts from elsewhere go into messages whose readers refuse control characters.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

}  // namespace

std::string_view event_kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::kJoined:
      return "joined";
    case EventKind::kSuspect:
      return "suspect";
    case EventKind::kRecovered:
      return "recovered";
    case EventKind::kGone:
      return "gone";
    case EventKind::kRestarted:
      return "restarted";
    case EventKind::kDuplicateId:
      return "duplicate_id";
    case EventKind::kRefused:
      return "refused";
    case EventKind::kPathChanged:
      return "path_changed";
    case EventKind::kPathLost:
      return "path_lost";
    case EventKind::kElected:
      return "elected";
    case EventKind::kDeposed:
      return "deposed";
    case EventKind::kCoordinator:
      return "coordinator";
    case EventKind::kVoters:
      return "voters";
    case EventKind::kEpochStarted:
      return "epoch_started";
    case EventKind::kEpochEnded:
      return "epoch_ended";
    case EventKind::kNotPlaced:
      return "not_placed";
    case EventKind::kStoreFailed:
      return "store_failed";
  }
  return "unknown";
}

struct NodeCore::Parts {
  struct Pending {
    Command command;
    Time since{};
    std::optional<Time> sent;
    bool answered_here = true;  // false: the node's own report, of which nobody waits for an answer
  };

  Parts(Options o, LeaseRecord record, ClusterStore& store)
      : options(std::move(o)),
        members(options.self, options.timing),
        paths(options.timing),
        lease({options.self.id, options.timing, options.seed}, std::move(record), store),
        coordinator(options.timing) {}

  const NodeId& self() const { return options.self.id; }
  bool leads(Time now) const { return lease.holds(now) && !members.duplicated(); }
  void send(const NodeId& to, const ClusterMessage& message, Actions& actions) {
    actions.sends.push_back({to, encode_message(message)});
  }
  void send(std::vector<Coordination::Outgoing> messages, Actions& actions) {
    for (auto& m : messages) send(m.to, m.message, actions);
  }

  void begin(Time now);
  void finish(Time now, Actions& actions);
  std::vector<PeerLink> hears() const;
  void beat(Time now, Actions& actions);
  void report_holder(Time now, Actions& actions);
  void coordinate(Time now, Actions& actions);
  void carry_commands(Time now, Actions& actions);
  void answer(std::uint64_t number, Status status, Actions& actions);
  void run_models(Time now, Actions& actions);
  void report_stranded(Time now, const ModelState& model);

  Options options;
  Membership members;
  Paths paths;
  MajorityLease lease;
  Coordinator coordinator;

  Time started{};
  Time next_beat{};
  bool led = false;
  std::optional<NodeId> known_holder;
  std::optional<ValueTag> writing;  // the tag before the write that is under way
  std::map<std::uint64_t, Pending> pending;
  std::uint64_t report_number = UINT64_MAX;  // own reports count down, the agent's commands up
  std::map<ModelId, Epoch> running;
  std::map<ModelId, Epoch> newest;  // never started again
  ClusterState empty;
};

NodeCore::NodeCore(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
NodeCore::~NodeCore() = default;

Result<std::unique_ptr<NodeCore>> NodeCore::create(Options options, ByteSpan stored,
                                                   ClusterStore& store) {
  // What this node would say of itself must be what others accept.
  if (!decode_message(encode_message(BeatMessage{{options.self, 0, {}}, {}, {}})))
    return fail(ErrorCode::kUsage,
                "the description of this node ('{}', {} addresses, {} models) is outside the "
                "limits of the cluster's messages",
                one_line(options.self.name), options.self.addresses.size(),
                options.self.models.size());
  LeaseRecord record;
  if (!stored.empty()) {
    SINEW_ASSIGN(record, decode_record(stored));
  }
  const bool found = options.found && stored.empty();
  std::unique_ptr<NodeCore> core(
      new NodeCore(std::make_unique<Parts>(std::move(options), std::move(record), store)));
  if (found) SINEW_TRY(core->parts_->lease.found());
  return core;
}

void NodeCore::Parts::begin(Time now) {
  members.advance(now);
}

std::vector<PeerLink> NodeCore::Parts::hears() const {
  std::vector<PeerLink> links;
  for (const NodeId& id : members.heard_ids()) {
    const auto path = paths.in_use(id);
    links.push_back({id, path ? path->kind : PathKind::kUnknown});
  }
  return links;
}

void NodeCore::Parts::beat(Time now, Actions& actions) {
  next_beat = now + options.timing.beat_every;
  const ClusterMessage message = members.next_beat(hears());
  for (const NodeId& id : members.ids()) send(id, message, actions);
}

void NodeCore::Parts::report_holder(Time now, Actions& actions) {
  const bool leads_now = leads(now);
  if (leads_now && !led) {
    coordinator.begin(now);
    writing.reset();
    actions.events.push_back(
        {EventKind::kElected, self(), fmt::format("this node coordinates, term {}", lease.term())});
  } else if (!leads_now && led) {
    actions.events.push_back({EventKind::kDeposed, self(), "this node coordinates no more"});
  }
  led = leads_now;
  const auto holder = lease.holder(now);
  if (holder && holder != known_holder && *holder != self())
    actions.events.push_back(
        {EventKind::kCoordinator, *holder,
         fmt::format("{} coordinates, term {}", members.label(*holder), lease.term())});
  if (holder) known_holder = holder;
}

void NodeCore::Parts::coordinate(Time now, Actions& actions) {
  if (!led) return;
  if (writing) {
    if (lease.agreed_tag() == *writing) return;
    writing.reset();
    coordinator.written(true);
  }
  const Coordinator::View view{now, now - started, lease.term(), members};
  std::vector<Event> events;
  if (auto next = coordinator.decide(view, *lease.agreed(), events)) {
    const ValueTag tag = lease.agreed_tag();
    if (lease.compare_and_swap(now, tag, std::move(*next))) {
      writing = tag;
      actions.events.insert(actions.events.end(), events.begin(), events.end());
    } else {
      coordinator.written(false);
    }
  } else {
    actions.events.insert(actions.events.end(), events.begin(), events.end());
  }
  for (Coordinator::Reply& reply : coordinator.take_replies()) {
    if (reply.to == self()) {
      answer(reply.reply.number, std::move(reply.reply.status), actions);
    } else {
      send(reply.to, reply.reply, actions);
    }
  }
}

void NodeCore::Parts::answer(std::uint64_t number, Status status, Actions& actions) {
  // A refused write is no answer: the command is carried to the coordinator again.
  if (!status && status.error().code == ErrorCode::kCancelled) return;
  const auto it = pending.find(number);
  if (it == pending.end()) return;
  if (it->second.answered_here) actions.answers.push_back({number, std::move(status)});
  pending.erase(it);
}

void NodeCore::Parts::carry_commands(Time now, Actions& actions) {
  const auto holder = lease.holder(now);
  for (auto it = pending.begin(); it != pending.end();) {
    auto& [number, p] = *it;
    if (now - p.since >= options.timing.command_deadline) {
      if (p.answered_here)
        actions.answers.push_back(
            {number, fail(ErrorCode::kDeadline,
                          "no coordinator has answered: most of the cluster's voters cannot be "
                          "reached")});
      it = pending.erase(it);
      continue;
    }
    if (holder && (!p.sent || now - *p.sent >= options.timing.command_resend)) {
      p.sent = now;
      if (*holder == self()) {
        coordinator.request({self(), number, p.command});
      } else {
        send(*holder, CommandMessage{number, p.command}, actions);
      }
    }
    ++it;
  }
}

void NodeCore::Parts::report_stranded(Time now, const ModelState& model) {
  for (const auto& [number, p] : pending)
    if (const auto* failed = std::get_if<FailEpoch>(&p.command);
        failed && failed->model == model.desired.id && !p.answered_here)
      return;
  if (pending.size() >= kCommandsMax) return;
  pending[report_number--] = {FailEpoch{model.desired.id, model.assignment->epoch, self(),
                                        "a node has lost the coordinator for too long"},
                              now, std::nullopt, false};
}

void NodeCore::Parts::run_models(Time now, Actions& actions) {
  const auto contact = lease.contact();
  const bool may_serve = !members.duplicated() &&
                         (leads(now) || (contact && now < *contact + options.timing.serve_alone));
  std::map<ModelId, const ModelState*> wanted;
  if (may_serve && lease.agreed())
    for (const ModelState& m : lease.agreed()->models) {
      const NodeShare* share = m.assignment ? m.assignment->share_of(self()) : nullptr;
      if (share && share->incarnation == options.self.incarnation) wanted[m.desired.id] = &m;
    }
  for (auto it = running.begin(); it != running.end();) {
    const auto want = wanted.find(it->first);
    if (want != wanted.end() && want->second->assignment->epoch == it->second) {
      ++it;
      continue;
    }
    actions.stops.push_back({it->first, it->second});
    it = running.erase(it);
  }
  for (const auto& [id, model] : wanted) {
    const Epoch epoch = model->assignment->epoch;
    if (running.contains(id)) continue;
    if (epoch <= newest[id]) {
      // Ended here on its own authority: only a new epoch can go on.
      report_stranded(now, *model);
      continue;
    }
    newest[id] = running[id] = epoch;
    actions.starts.push_back({model->desired, *model->assignment});
  }
}

void NodeCore::Parts::finish(Time now, Actions& actions) {
  members.tick(actions.events);
  lease.set_voting(!members.duplicated());
  const std::vector<NodeId> ids = members.ids();
  paths.tick(now, ids, actions);
  if (now >= lease.next_tick()) send(lease.tick(now, ids), actions);
  report_holder(now, actions);
  carry_commands(now, actions);
  coordinate(now, actions);
  // A write is sent at once rather than with the next renewal.
  if (now >= lease.next_tick()) send(lease.tick(now, ids), actions);
  run_models(now, actions);
  if (now >= next_beat) beat(now, actions);
  if (const auto error = lease.take_store_error())
    actions.events.push_back({EventKind::kStoreFailed, self(), one_line(error->message)});
}

NodeCore::Actions NodeCore::start(Time now) {
  Actions actions;
  Parts& p = *parts_;
  p.started = p.next_beat = now;
  p.members.start(now);
  p.lease.start(now);
  p.finish(now, actions);
  return actions;
}

NodeCore::Actions NodeCore::tick(Time now) {
  Actions actions;
  parts_->begin(now);
  parts_->finish(now, actions);
  return actions;
}

Time NodeCore::next_tick() const {
  return std::min(parts_->next_beat, parts_->lease.next_tick());
}

NodeCore::Actions NodeCore::connected(Time now, const NodeId& peer, const Address& address) {
  Actions actions;
  Parts& p = *parts_;
  p.begin(now);
  p.paths.connected(now, peer, address, actions);
  // The first word, also to a node that is no member yet: so both get to know each other.
  p.send(peer, p.members.next_beat(p.hears()), actions);
  p.finish(now, actions);
  return actions;
}

NodeCore::Actions NodeCore::disconnected(Time now, const NodeId& peer) {
  Actions actions;
  parts_->begin(now);
  parts_->paths.disconnected(peer);
  parts_->finish(now, actions);
  return actions;
}

NodeCore::Actions NodeCore::probed(Time now, const NodeId& peer, const Address& address,
                                   std::optional<Time> round_trip) {
  Actions actions;
  parts_->begin(now);
  parts_->paths.probed(now, peer, address, round_trip);
  parts_->finish(now, actions);
  return actions;
}

NodeCore::Actions NodeCore::received(Time now, const NodeId& from, ByteSpan bytes) {
  Actions actions;
  Parts& p = *parts_;
  p.begin(now);
  auto message = decode_message(bytes);
  if (!message) {
    actions.events.push_back(
        {EventKind::kRefused, from,
         fmt::format("{}: {}", p.members.label(from), message.error().message)});
  } else if (const auto* beat = std::get_if<BeatMessage>(&*message)) {
    p.members.on_beat(from, *beat, actions.events);
  } else if (const auto* lease = std::get_if<LeaseMessage>(&*message)) {
    p.send(p.lease.received(now, from, *lease), actions);
  } else if (auto* command = std::get_if<CommandMessage>(&*message)) {
    if (p.leads(now)) p.coordinator.request({from, command->number, std::move(command->command)});
  } else if (auto* reply = std::get_if<CommandReply>(&*message)) {
    p.answer(reply->number, std::move(reply->status), actions);
  } else {
    p.members.on_leave(from, std::get<LeaveMessage>(*message).incarnation, actions.events);
  }
  p.finish(now, actions);
  return actions;
}

NodeCore::Actions NodeCore::command(Time now, std::uint64_t number, Command command) {
  Actions actions;
  Parts& p = *parts_;
  p.begin(now);
  if (auto* failed = std::get_if<FailEpoch>(&command)) failed->reason = one_line(failed->reason);
  if (p.pending.contains(number) || p.pending.size() >= kCommandsMax) {
    actions.answers.push_back(
        {number,
         fail(ErrorCode::kUsage, "{} commands wait for an answer already", p.pending.size())});
  } else {
    p.pending[number] = {std::move(command), now, std::nullopt, true};
  }
  p.finish(now, actions);
  return actions;
}

void NodeCore::update_self(Member self) {
  self.id = parts_->options.self.id;
  self.incarnation = parts_->options.self.incarnation;
  self.nonce = parts_->options.self.nonce;
  parts_->options.self = self;
  parts_->members.update_self(std::move(self));
}

NodeCore::Actions NodeCore::leave(Time now) {
  Actions actions;
  Parts& p = *parts_;
  p.begin(now);
  for (const NodeId& id : p.members.ids())
    p.send(id, LeaveMessage{p.options.self.incarnation}, actions);
  for (const auto& [model, epoch] : p.running) actions.stops.push_back({model, epoch});
  p.running.clear();
  return actions;
}

std::vector<MemberView> NodeCore::members() const {
  MemberView self;
  self.member = parts_->members.self();
  self.heard = true;
  std::vector<MemberView> views = parts_->members.views();
  self.hears = parts_->hears();
  views.insert(views.begin(), std::move(self));
  return views;
}

std::optional<NodeId> NodeCore::coordinator(Time now) const {
  return parts_->lease.holder(now);
}

bool NodeCore::coordinates(Time now) const {
  return parts_->leads(now);
}

std::uint64_t NodeCore::term() const {
  return parts_->lease.term();
}

const ClusterState& NodeCore::state() const {
  return parts_->lease.agreed() ? *parts_->lease.agreed() : parts_->empty;
}

ValueTag NodeCore::state_tag() const {
  return parts_->lease.agreed_tag();
}

std::optional<Address> NodeCore::path(const NodeId& peer) const {
  return parts_->paths.in_use(peer);
}

}  // namespace sinew
