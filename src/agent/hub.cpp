#include "agent/hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace sinew {
namespace {

std::string remote_host(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return {};
  const void* address =
      peer.ss_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(peer).sin_addr);
  if (::inet_ntop(peer.ss_family, address, text.data(), text.size()) == nullptr) return {};
  std::string host(text.data());
  // IPv4 as a socket for both kinds shows it.
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos)
    host.erase(0, kMapped.size());
  return host;
}

}  // namespace

Hub::Hub(const TlsSettings& settings, Options options)
    : settings_(settings),
      options_(std::move(options)),
      random_(static_cast<std::minstd_rand::result_type>(options_.seed | 1)) {}

Result<std::unique_ptr<Hub>> Hub::create(const TlsSettings& settings, Options options) {
  std::unique_ptr<Hub> hub(new Hub(settings, std::move(options)));
  std::uint16_t port = hub->options_.port;
  for (const std::string& host : hub->options_.listen) {
    SINEW_ASSIGN(TcpListener listener, TcpListener::bind(host, port));
    port = listener.port();
    hub->listeners_.push_back(std::move(listener));
  }
  hub->options_.self.port = port;
  return hub;
}

std::string Hub::key(const Address& address) {
  return fmt::format("{} {}", address.host, address.port);
}

void Hub::set_targets(const std::vector<Target>& targets) {
  std::map<std::string, Dial> next;
  for (const Target& target : targets) {
    const std::string name = key(target.address);
    const auto known = dials_.find(name);
    Dial dial = known == dials_.end() ? Dial{} : known->second;
    dial.target = target;
    next.emplace(name, std::move(dial));
  }
  dials_ = std::move(next);
  for (const auto& connection : connections_) {
    if (!connection->dialled) continue;
    const auto dial = dials_.find(key(connection->address));
    if (dial == dials_.end())
      connection->broken = Error{ErrorCode::kCancelled, "the address is no longer used", {}};
    else
      connection->address = dial->second.target.address;  // its kind may be known by now
  }
}

void Hub::add_polls(std::vector<pollfd>& polls) const {
  for (const TcpListener& listener : listeners_) polls.push_back({listener.fd(), POLLIN, 0});
  for (const auto& connection : connections_)
    polls.push_back({connection->channel->fd(), connection->channel->poll_events(), 0});
}

Time Hub::next_due(Time now) const {
  // Deadlines need no better grain than this; only dials and probes are worth an exact one.
  Time due = now + std::chrono::milliseconds{500};
  for (const auto& [name, dial] : dials_) {
    if (!dial.open && !dial.self) due = std::min(due, std::max(dial.next, now));
  }
  for (const auto& connection : connections_) {
    if (connection->dialled && connection->peer) due = std::min(due, connection->next_probe);
  }
  return std::max(due, now);
}

void Hub::serve(Time now) {
  accept_all(now);
  dial_due(now);
  for (const auto& connection : connections_) {
    if (!connection->broken) serve_one(*connection, now);
    if (!connection->broken) check_deadlines(*connection, now);
  }
  remove_broken(now);
}

void Hub::accept_all(Time now) {
  for (TcpListener& listener : listeners_) {
    // A bounded number in a row, so that a flood does not starve those who are in.
    for (std::size_t i = 0; i < kUnknownMax; ++i) {
      Result<Socket> socket = listener.accept();
      if (!socket || !*socket) break;
      if (connections_.size() >= kConnectionsMax) continue;  // closed at once
      const std::string host = remote_host(socket->fd());
      auto channel = SecureChannel::create(settings_, std::move(*socket), false);
      if (!channel) continue;
      auto connection = std::make_unique<Connection>();
      connection->channel = std::move(*channel);
      connection->address.host = host;
      connection->began = now;
      connection->heard = now;
      connections_.push_back(std::move(connection));
      if (unknown_count() > kUnknownMax) evict_unknown();
    }
  }
}

std::size_t Hub::unknown_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(connections_, [](const auto& connection) {
    return !connection->dialled && !connection->peer && !connection->broken;
  }));
}

void Hub::evict_unknown() {
  std::map<std::string, int> count;
  const auto unknown = [](const Connection& connection) {
    return !connection.dialled && !connection.peer && !connection.broken;
  };
  for (const auto& connection : connections_) {
    if (unknown(*connection)) ++count[connection->address.host];
  }
  const auto most = std::ranges::max_element(
      count, [](const auto& a, const auto& b) { return a.second < b.second; });
  // Connections are in the order in which they came.
  for (const auto& connection : connections_) {
    if (!unknown(*connection) || connection->address.host != most->first) continue;
    connection->broken =
        Error{ErrorCode::kDeadline, "too many connections that have proven nothing", {}};
    return;
  }
}

void Hub::dial_due(Time now) {
  for (auto& [name, dial] : dials_) {
    if (dial.open || dial.self || dial.next > now) continue;
    Result<Socket> socket = start_connect({dial.target.address.host, dial.target.address.port});
    if (!socket) {
      redial_later(dial, now, false);
      Happening refused;
      refused.kind = Happening::Kind::kRefused;
      refused.dialled = true;
      refused.address = dial.target.address;
      refused.error = socket.error();
      happenings_.push_back(std::move(refused));
      continue;
    }
    auto channel = SecureChannel::create(settings_, std::move(*socket), true);
    if (!channel) {
      redial_later(dial, now, false);
      continue;
    }
    auto connection = std::make_unique<Connection>();
    connection->channel = std::move(*channel);
    connection->dialled = true;
    connection->address = dial.target.address;
    connection->expected = dial.target.node;
    connection->began = now;
    connection->heard = now;
    connections_.push_back(std::move(connection));
    dial.open = true;
  }
}

void Hub::redial_later(Dial& dial, Time now, bool proven) {
  dial.open = false;
  dial.wait = proven || dial.wait == Time{} ? options_.timing.redial_first
                                            : std::min(2 * dial.wait, options_.timing.redial_max);
  // Up to a quarter more, so that machines that start together do not go on together.
  const auto extra = dial.wait.count() / 4 + 1;
  dial.next = now + dial.wait + Time(static_cast<Time::rep>(random_()) % extra);
}

void Hub::serve_one(Connection& connection, Time now) {
  std::vector<ControlFrame> frames;
  const Status status = connection.channel->advance(frames);
  if (connection.channel->established() && !connection.greeted) {
    connection.greeted = true;
    const std::vector<std::byte> hello = encode_hello(options_.self);
    static_cast<void>(connection.channel->send(FrameKind::kHello, hello).has_value());
  }
  for (ControlFrame& frame : frames) {
    if (connection.broken) return;
    connection.heard = now;
    take_frame(connection, std::move(frame), now);
  }
  if (!status && !connection.broken) connection.broken = status.error();
  if (connection.broken) return;
  std::vector<ControlFrame> more;
  if (connection.channel->has_unsent()) {
    // What the frames led to goes out at once.
    const Status sent = connection.channel->advance(more);
    for (ControlFrame& frame : more) {
      if (!connection.broken) take_frame(connection, std::move(frame), now);
    }
    if (!sent && !connection.broken) connection.broken = sent.error();
  }
}

void Hub::take_frame(Connection& connection, ControlFrame frame, Time now) {
  if (frame.kind == FrameKind::kRefused) {
    const std::string_view text(reinterpret_cast<const char*>(frame.payload.data()),
                                frame.payload.size());
    std::string line(text);
    std::ranges::replace_if(
        line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
    connection.broken = Error{ErrorCode::kProtocol, "the other machine refuses: " + line, {}};
    return;
  }
  if (!connection.peer) {
    if (frame.kind != FrameKind::kHello) {
      connection.broken = Error{ErrorCode::kProtocol, "the first message is no hello", {}};
      return;
    }
    take_hello(connection, frame);
    return;
  }
  Happening happening;
  happening.peer = connection.peer->id;
  happening.address = connection.address;
  happening.dialled = connection.dialled;
  switch (frame.kind) {
    case FrameKind::kProbe: {
      const Status sent = connection.channel->send(FrameKind::kProbeReply, frame.payload);
      if (!sent) connection.broken = sent.error();
      return;
    }
    case FrameKind::kProbeReply:
      if (!connection.probe_sent) return;
      connection.round_trip = now - *connection.probe_sent;
      connection.probe_sent.reset();
      happening.kind = Happening::Kind::kProbed;
      happening.round_trip = connection.round_trip;
      break;
    case FrameKind::kCluster:
      happening.kind = Happening::Kind::kMessage;
      happening.payload = std::move(frame.payload);
      break;
    case FrameKind::kHello:
    case FrameKind::kRefused:
      connection.broken = Error{ErrorCode::kProtocol, "a second hello", {}};
      return;
  }
  happenings_.push_back(std::move(happening));
}

void Hub::take_hello(Connection& connection, const ControlFrame& frame) {
  Result<Hello> hello = decode_hello(frame.payload);
  if (!hello) {
    connection.broken = hello.error();
    return;
  }
  const bool own_id = hello->id == options_.self.id;
  if (own_id) {
    const bool self = hello->nonce == options_.self.nonce;
    if (self && connection.dialled) {
      if (const auto dial = dials_.find(key(connection.address)); dial != dials_.end())
        dial->second.self = true;
    }
    if (self && !connection.dialled) {
      connection.own = true;  // the dialling end closes it, once it has seen the same
      return;
    }
    if (!self) {
      Happening duplicate;
      duplicate.kind = Happening::Kind::kDuplicate;
      duplicate.peer = hello->id;
      duplicate.address = connection.address;
      duplicate.name = hello->name;
      happenings_.push_back(std::move(duplicate));
      const std::string why =
          "both machines have one node id: remove the file 'identity' in one's state folder";
      static_cast<void>(connection.channel->send(FrameKind::kRefused, as_bytes(why)).has_value());
      std::vector<ControlFrame> ignored;
      static_cast<void>(connection.channel->advance(ignored).has_value());
    }
    connection.broken = Error{ErrorCode::kCancelled, "a connection to this node's own id", {}};
    return;
  }
  if (!connection.expected.none() && connection.expected != hello->id) {
    connection.broken = Error{ErrorCode::kCancelled, "another node answers there", {}};
    return;
  }
  if (!connection.dialled) {
    connection.address.port = hello->port;
    if (const auto dial = dials_.find(key(connection.address)); dial != dials_.end())
      connection.address = dial->second.target.address;
  }
  // Another way to a peer that is reached already is known by its probes; the way that a peer came
  // itself says least of where it can be dialled.
  const Connection* other = best(hello->id, std::nullopt);
  connection.peer = std::move(*hello);
  if (other != nullptr && (other->dialled || !connection.dialled)) return;
  Happening connected;
  connected.kind = Happening::Kind::kConnected;
  connected.peer = connection.peer->id;
  connected.address = connection.address;
  connected.dialled = connection.dialled;
  connected.name = connection.peer->name;
  happenings_.push_back(std::move(connected));
}

void Hub::check_deadlines(Connection& connection, Time now) {
  const Timing& timing = options_.timing;
  if (!connection.peer) {
    if (now - connection.began > timing.handshake)
      connection.broken = Error{
          ErrorCode::kDeadline, connection.dialled ? "no answer" : "proved nothing in time", {}};
    return;
  }
  if (now - connection.heard > timing.silence_max) {
    connection.broken = Error{ErrorCode::kPeerLost, "nothing heard", {}};
    return;
  }
  if (connection.dialled && now >= connection.next_probe) send_probe(connection, now);
}

void Hub::send_probe(Connection& connection, Time now) {
  connection.next_probe = now + options_.timing.probe_every;
  if (connection.probe_sent) return;  // the one under way counts, until silence ends it
  connection.probe_sent = now;
  const std::uint64_t number = 0;
  const Status sent = connection.channel->send(
      FrameKind::kProbe, std::as_bytes(std::span<const std::uint64_t>(&number, 1)));
  std::vector<ControlFrame> frames;
  if (!sent) connection.broken = sent.error();
}

void Hub::remove_broken(Time now) {
  std::vector<std::unique_ptr<Connection>> ended;
  for (auto& connection : connections_) {
    if (connection->broken) ended.push_back(std::move(connection));
  }
  std::erase_if(connections_, [](const auto& connection) { return connection == nullptr; });
  for (const auto& connection : ended) {
    if (connection->dialled) {
      if (const auto dial = dials_.find(key(connection->address)); dial != dials_.end())
        redial_later(dial->second, now, connection->peer.has_value());
    }
    report_end(*connection);
  }
}

void Hub::report_end(const Connection& connection) {
  Happening ended;
  ended.address = connection.address;
  ended.dialled = connection.dialled;
  ended.error = *connection.broken;
  if (!connection.peer) {
    if (connection.own || connection.broken->code == ErrorCode::kCancelled) return;
    ended.kind = Happening::Kind::kRefused;
    happenings_.push_back(std::move(ended));
    return;
  }
  ended.peer = connection.peer->id;
  if (connection.dialled) {
    ended.kind = Happening::Kind::kProbed;  // without a round trip: the address is dead
    happenings_.push_back(ended);
  }
  if (const Connection* other = best(ended.peer, std::nullopt); other != nullptr) {
    ended.kind = Happening::Kind::kConnected;
    ended.address = other->address;
    ended.dialled = other->dialled;
    ended.name = other->peer->name;
  } else {
    ended.kind = Happening::Kind::kDisconnected;
  }
  happenings_.push_back(std::move(ended));
}

Hub::Connection* Hub::best(const NodeId& peer, const std::optional<Address>& preferred) {
  Connection* found = nullptr;
  int found_rank = 0;
  for (const auto& connection : connections_) {
    if (!connection->peer || connection->peer->id != peer || connection->broken) continue;
    const bool wanted = preferred && key(*preferred) == key(connection->address);
    const int rank = 1 + (connection->dialled ? 1 : 0) + (wanted ? 2 : 0);
    // Of equals the youngest: an old one may lead to a process that is gone.
    if (rank >= found_rank) {
      found = connection.get();
      found_rank = rank;
    }
  }
  return found;
}

bool Hub::send(const NodeId& peer, const std::optional<Address>& preferred, ByteSpan message) {
  Connection* connection = best(peer, preferred);
  if (connection == nullptr) return false;
  const Status sent = connection->channel->send(FrameKind::kCluster, message);
  if (!sent) connection->broken = sent.error();
  return sent.has_value();
}

void Hub::flush() {
  for (const auto& connection : connections_) {
    std::vector<ControlFrame> ignored;
    if (!connection->broken && connection->peer)
      static_cast<void>(connection->channel->advance(ignored).has_value());
  }
}

std::vector<Hub::Happening> Hub::take_happenings() {
  return std::exchange(happenings_, {});
}

std::vector<Hub::Path> Hub::paths() const {
  std::vector<Path> paths;
  for (const auto& connection : connections_) {
    if (connection->peer)
      paths.push_back(
          {connection->peer->id, connection->address, connection->dialled, connection->round_trip});
  }
  return paths;
}

}  // namespace sinew
