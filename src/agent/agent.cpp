#include "agent/agent.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "agent/control_socket.h"
#include "agent/discovery.h"
#include "agent/events.h"
#include "agent/hex.h"
#include "agent/hub.h"
#include "agent/identity.h"
#include "agent/interfaces.h"
#include "agent/report.h"
#include "base/log.h"
#include "cluster/message.h"
#include "host/process.h"

namespace sinew {
namespace {

constexpr std::string_view kStoreName = "promises";
constexpr Time kLookAround = std::chrono::seconds{5};  // for addresses and memory that changed
constexpr Time kLogEvery = std::chrono::seconds{10};   // a refusal of one kind
constexpr Time kPollMax = std::chrono::milliseconds{250};

// Goes on while the machine sleeps, as node.h asks.
Time steady_now() {
#ifdef __APPLE__
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#else
  constexpr clockid_t kClock = CLOCK_BOOTTIME;
#endif
  timespec now{};
  ::clock_gettime(kClock, &now);
  return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
}

std::string machine_name() {
  std::array<char, kMemberNameMax> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.front() == '\0' ? "unnamed" : name.data();
}

std::uint64_t physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0
             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)
             : 0;
}

class FolderStore : public ClusterStore {
 public:
  explicit FolderStore(const StateFolder& folder) : folder_(folder) {}
  Status save(ByteSpan block) override {
    return folder_.write(kStoreName, {reinterpret_cast<const char*>(block.data()), block.size()});
  }

 private:
  const StateFolder& folder_;
};

}  // namespace

struct Agent::Parts {
  Parts(AgentOptions given, StateFolder opened)
      : options(std::move(given)), folder(std::move(opened)), store(folder), events(folder) {}

  AgentOptions options;
  StateFolder folder;
  FolderStore store;
  EventRing events;
  ClusterSecret secret;
  NodeIdentity identity;
  std::unique_ptr<TlsSettings> tls;
  std::unique_ptr<Hub> hub;
  std::unique_ptr<ControlSocket> door;
  std::unique_ptr<Discovery> discovery;
  std::unique_ptr<NodeCore> core;
  Member self;
  bool joining = false;
  std::optional<Error> refused;                   // while joining: why
  std::map<std::string, std::uint64_t> refusals;  // by name of the error
  std::map<std::string, Time> logged;
  Time next_look{};

  Status set_up();
  Member describe_self() const;
  void start_discovery();
  void look_around(Time now);
  void aim();
  void carry_out(NodeCore::Actions actions);
  void take(Hub::Happening happening, Time now);
  void take_refusal(const Hub::Happening& happening, Time now);
  void note(std::string_view kind, const NodeId& node, const std::string& text);
  Status joined();
  std::string answer(const std::string& request) const;
  void wait(Time now) const;
};

Agent::Agent(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::create(AgentOptions options) {
  std::string path = options.state;
  if (path.empty()) {
    SINEW_ASSIGN(path, StateFolder::default_path());
  }
  SINEW_ASSIGN(StateFolder folder, StateFolder::open(path));
  auto parts = std::make_unique<Parts>(std::move(options), std::move(folder));
  SINEW_TRY(parts->set_up());
  return std::unique_ptr<Agent>(new Agent(std::move(parts)));
}

Status Agent::Parts::set_up() {
  SINEW_TRY(folder.lock());
  SINEW_ASSIGN(const auto known, load_secret(folder));
  if (options.joins) {
    secret = *options.joins;
    if (known && known->cluster != secret.cluster)
      return fail(ErrorCode::kUsage,
                  "this machine is in the cluster {} already: to leave it, remove '{}'",
                  known->cluster_name().substr(0, 8), folder.path());
    if (known) secret.founder = known->founder;
    joining = !known || known->secret != secret.secret;
  } else if (known) {
    secret = *known;
  } else {
    return fail(ErrorCode::kUsage,
                "this machine is in no cluster: 'sinew cluster create' makes one, 'sinew node "
                "--join HOST' joins one");
  }
  SINEW_ASSIGN(identity, take_identity(folder, machine_fingerprint()));
  SINEW_ASSIGN(tls, TlsSettings::create(secret, {kControlVersion, options.version}));
  Hub::Options hub_options;
  hub_options.self = {identity.id, identity.incarnation, identity.nonce, 0, machine_name()};
  hub_options.listen = options.listen;
  hub_options.port = options.port;
  hub_options.seed = identity.nonce;
  if (hub_options.listen.empty()) hub_options.listen = {"::"};
  Result<std::unique_ptr<Hub>> made = Hub::create(*tls, hub_options);
  if (!made && options.listen.empty()) {
    hub_options.listen = {"0.0.0.0"};  // a machine without IPv6
    made = Hub::create(*tls, hub_options);
  }
  if (!made)
    return fail(made.error().within("is another program on this port? --port names another"));
  hub = std::move(*made);
  SINEW_ASSIGN(door, ControlSocket::create(folder.file(kControlSocketName)));
  self = describe_self();
  SINEW_ASSIGN(const auto stored, folder.read(kStoreName, kClusterMessageBytesMax));
  NodeCore::Options core_options;
  core_options.self = self;
  core_options.found = secret.founder && !identity.copied;
  core_options.seed = identity.nonce;
  // A copied folder brings another node's promises: they are not this one's to keep.
  const std::string promises = stored && !identity.copied ? *stored : "";
  SINEW_ASSIGN(core, NodeCore::create(core_options, as_bytes(promises), store));
  return {};
}

Member Agent::Parts::describe_self() const {
  Member member;
  member.id = identity.id;
  member.name = machine_name();
  member.incarnation = identity.incarnation;
  member.nonce = identity.nonce;
  member.wire_version = kClusterWireVersion;
  member.version = options.version;
  if (options.listen.empty()) {
    member.addresses = own_addresses(hub->port());
  } else {
    for (const std::string& host : options.listen) {
      const bool loopback = host.starts_with("127.") || host == "::1";
      PathKind kind = loopback ? PathKind::kLoopback : PathKind::kUnknown;
      for (const Address& own : own_addresses(hub->port())) {
        if (own.host == host) kind = own.kind;
      }
      if (member.addresses.size() < kMemberAddressesMax)
        member.addresses.push_back({kind, false, host, hub->port()});
    }
  }
  member.memory_bytes = physical_memory();
  member.memory_available_bytes = available_memory();
  return member;
}

void Agent::Parts::start_discovery() {
  const Result<DnsSdApi> api = load_dns_sd();
  if (!api) {
    spdlog::warn("no discovery: {}; --peer and --join need none", api.error().message);
    return;
  }
  Announcement own{secret.cluster_name(), to_hex(identity.id.bytes), {}};
  for (const Address& address : self.addresses) own.hosts.push_back(address.host);
  discovery = Discovery::start(*api, own, hub->port());
}

void Agent::Parts::look_around(Time now) {
  if (now < next_look) return;
  if (discovery != nullptr) {
    if (const std::string line = discovery->take_complaint(); !line.empty())
      spdlog::warn("no discovery: {}", line);
  }
  next_look = now + kLookAround;
  self = describe_self();
  core->update_self(self);
}

// Dials whom one was told of, and every address of every member.
void Agent::Parts::aim() {
  std::vector<Hub::Target> targets;
  for (const Endpoint& peer : options.peers)
    targets.push_back({{PathKind::kUnknown, false, peer.host, peer.port}, {}});
  if (discovery != nullptr) {
    for (const Address& address : discovery->found()) targets.push_back({address, {}});
  }
  for (const MemberView& view : core->members()) {
    if (view.member.id == identity.id) continue;
    for (const Address& address : view.member.addresses) {
      // An address that both have, as 127.0.0.1 or a bridge's, leads to this machine itself.
      const bool own = std::ranges::any_of(self.addresses, [&](const Address& mine) {
        return mine.host == address.host && mine.port == address.port;
      });
      if (own) continue;
      std::erase_if(targets, [&](const Hub::Target& target) {
        return target.address.host == address.host && target.address.port == address.port;
      });
      targets.push_back({address, view.member.id});
    }
  }
  hub->set_targets(targets);
}

void Agent::Parts::note(std::string_view kind, const NodeId& node, const std::string& text) {
  spdlog::info("{}{}{}: {}", kind, node.none() ? "" : " ", node.none() ? "" : node.short_name(),
               text);
  if (const Status kept = events.add(kind, node.none() ? "" : node.short_name(), text); !kept)
    spdlog::warn("{}", kept.error().message);
}

void Agent::Parts::carry_out(NodeCore::Actions actions) {
  for (const Event& event : actions.events)
    note(event_kind_name(event.kind), event.who, event.text);
  // Starting and stopping ranks is the next step: actions.stops, actions.starts. Nothing loads a
  // model yet, so there are none.
  for (const NodeCore::Send& send : actions.sends)
    hub->send(send.to, core->path(send.to), send.message);
}

Status Agent::Parts::joined() {
  joining = false;
  SINEW_TRY(save_secret(folder, secret));
  spdlog::info("joined the cluster {}", secret.cluster_name().substr(0, 8));
  return {};
}

void Agent::Parts::take_refusal(const Hub::Happening& happening, Time now) {
  const Error& error = happening.error;
  const std::string_view name = error_code_name(error.code);
  const std::string where = fmt::format("{} {}:{}", happening.dialled ? "to" : "from",
                                        happening.address.host, happening.address.port);
  const std::string kind = fmt::format("{} {}", happening.dialled ? where : "from others", name);
  ++refusals[std::string(happening.dialled ? "dialled " : "refused ") + std::string(name)];
  const bool final_word =
      error.code == ErrorCode::kUnauthorised || error.code == ErrorCode::kProtocol;
  if (joining && happening.dialled && final_word) refused = error.within(where);
  // Keys are few: what comes from others is counted by kind, not by address.
  Time& last = logged[kind];
  if (last != Time{} && now - last < kLogEvery) return;
  last = now;
  spdlog::warn(
      "connection {}: {} ({} so far)", where, error.message,
      refusals[std::string(happening.dialled ? "dialled " : "refused ") + std::string(name)]);
  if (!happening.dialled && final_word) note("refused", {}, where + ": " + error.message);
}

void Agent::Parts::take(Hub::Happening happening, Time now) {
  using Kind = Hub::Happening::Kind;
  switch (happening.kind) {
    case Kind::kConnected:
      return carry_out(core->connected(now, happening.peer, happening.address));
    case Kind::kDisconnected:
      return carry_out(core->disconnected(now, happening.peer));
    case Kind::kMessage:
      return carry_out(core->received(now, happening.peer, happening.payload));
    case Kind::kProbed:
      return carry_out(core->probed(now, happening.peer, happening.address, happening.round_trip));
    case Kind::kRefused:
      return take_refusal(happening, now);
    case Kind::kDuplicate:
      return note(event_kind_name(EventKind::kDuplicateId), happening.peer,
                  fmt::format("'{}' at {} has this node's id as well: was a disk copied? remove "
                              "the file 'identity' in one's state folder",
                              happening.name, happening.address.host));
  }
}

std::string Agent::Parts::answer(const std::string& request) const {
  const Time now = steady_now();
  if (request == "nodes") return report_nodes(*core, now, secret, refusals);
  if (request == "links") return report_links(*core, hub->paths());
  return report_error("this agent does not know the request: is it of another version?");
}

void Agent::Parts::wait(Time now) const {
  std::vector<pollfd> polls;
  hub->add_polls(polls);
  door->add_polls(polls);
  const Time due = std::min({hub->next_due(now), core->next_tick(), now + kPollMax});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - now).count();
  ::poll(polls.data(), static_cast<nfds_t>(polls.size()),
         static_cast<int>(std::max<std::int64_t>(left, 0)));
}

Status Agent::run(const std::function<bool()>& stopping) {
  Parts& p = *parts_;
  const auto started =
      fmt::format("node {} incarnation {} listens on port {}", p.identity.id.short_name(),
                  p.identity.incarnation, p.hub->port());
  p.note("started", p.identity.id, started);
  if (p.identity.copied)
    p.note("copied_state", p.identity.id,
           fmt::format("the state folder came from another machine: its id {} stays there, this "
                       "machine is {}",
                       p.identity.left.short_name(), p.identity.id.short_name()));
  p.carry_out(p.core->start(steady_now()));
  if (p.options.discovers) p.start_discovery();
  while (!stopping()) {
    const Time now = steady_now();
    p.look_around(now);
    p.aim();
    p.hub->serve(now);
    for (Hub::Happening& happening : p.hub->take_happenings()) {
      if (p.joining && happening.kind == Hub::Happening::Kind::kConnected) SINEW_TRY(p.joined());
      p.take(std::move(happening), now);
    }
    if (p.joining && p.refused) return fail(*p.refused);
    if (now >= p.core->next_tick()) p.carry_out(p.core->tick(now));
    p.hub->flush();
    p.door->serve([&p](const std::string& request) { return p.answer(request); });
    p.wait(steady_now());
  }
  p.carry_out(p.core->leave(steady_now()));
  p.hub->flush();
  p.note("stopped", p.identity.id, "this agent was stopped");
  return {};
}

}  // namespace sinew
