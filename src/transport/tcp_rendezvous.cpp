#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "transport/poll_timeout.h"
#include "transport/tcp_hello.h"
#include "transport/tcp_link.h"

namespace sinew {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRetryFirst{10};
constexpr milliseconds kRetryMax{500};
// A connection that has not said its hello by then is dropped: strangers hold no place for long.
constexpr milliseconds kHelloMax{3000};
constexpr std::size_t kStrangersMax = 32;

// A connection that is still to say its hello.
struct Handshake {
  Socket socket;
  HelloBytes bytes{};
  std::size_t got = 0;
  Deadline end;

  // True once the hello is complete. kPeerLost if the other side closed.
  Result<bool> read();
};

Result<bool> Handshake::read() {
  const ssize_t count = recv(socket.fd(), bytes.data() + got, bytes.size() - got, 0);
  if (count == 0) return fail(ErrorCode::kPeerLost, "closed before its hello");
  if (count < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    return fail(ErrorCode::kPeerLost, "{}", std::strerror(errno));
  }
  got += static_cast<std::size_t>(count);
  return got == bytes.size();
}

Status say_hello(const Socket& socket, const GroupIdentity& identity) {
  const HelloBytes bytes = encode_hello(identity);
#ifdef MSG_NOSIGNAL
  const int flags = MSG_NOSIGNAL;
#else
  const int flags = 0;
#endif
  // The first bytes of a connection always fit its send buffer.
  if (send(socket.fd(), bytes.data(), bytes.size(), flags) == static_cast<ssize_t>(bytes.size())) {
    return {};
  }
  return fail(ErrorCode::kPeerLost, "cannot send a hello: {}", std::strerror(errno));
}

// The attempts to reach one rank below the own.
struct Outbound {
  Rank peer = 0;
  Endpoint endpoint;
  enum class Phase : std::uint8_t {
    kIdle,
    kConnecting,
    kAwaitingHello,
    kDone
  } phase = Phase::kIdle;
  Handshake handshake;
  Deadline next_attempt{};
  milliseconds pause = kRetryFirst;
  std::string trouble = "no answer";

  void retry_later(const Error& error) {
    trouble = error.message;
    handshake = {};
    phase = Phase::kIdle;
    next_attempt = steady_clock::now() + pause;
    pause = std::min(pause * 2, kRetryMax);
  }
};

class Rendezvous {
 public:
  // Connects to the `wanted` ranks below the own, which listen at their entries of `peers`, and
  // waits for those above to connect to `listener`; null where none is wanted.
  Rendezvous(const GroupIdentity& identity, TcpListener* listener, std::span<const Endpoint> peers,
             RankSet wanted);
  Result<std::vector<Socket>> run(Deadline deadline, const std::atomic<bool>* stop = nullptr);

 private:
  bool complete() const;
  void start_attempts();
  Deadline next_event(Deadline deadline) const;
  void wait(Deadline until);
  Status take_new();
  void advance(Outbound& out);
  void advance_strangers();
  Error missing() const;

  GroupIdentity identity_;
  TcpListener* listener_;
  RankSet wanted_;
  std::vector<Socket> sockets_;  // by rank, once the hello was right
  std::vector<Outbound> outbound_;
  std::vector<Handshake> strangers_;  // accepted, no hello yet
  std::string turned_away_;           // why the last stranger was dropped
};

Rendezvous::Rendezvous(const GroupIdentity& identity, TcpListener* listener,
                       std::span<const Endpoint> peers, RankSet wanted)
    : identity_(identity),
      listener_(listener),
      wanted_(wanted),
      sockets_(static_cast<std::size_t>(identity.size)) {
  for (Rank peer = 0; peer < identity.rank; ++peer) {
    if (!wanted.contains(peer)) continue;
    Outbound out;
    out.peer = peer;
    out.endpoint = peers[static_cast<std::size_t>(peer)];
    outbound_.push_back(std::move(out));
  }
}

bool Rendezvous::complete() const {
  for (Rank peer = 0; peer < identity_.size; ++peer) {
    if (wanted_.contains(peer) && !sockets_[static_cast<std::size_t>(peer)]) return false;
  }
  return true;
}

void Rendezvous::start_attempts() {
  const auto now = steady_clock::now();
  for (Outbound& out : outbound_) {
    if (out.phase != Outbound::Phase::kIdle || now < out.next_attempt) continue;
    auto socket = start_connect(out.endpoint);
    if (!socket) {
      out.retry_later(socket.error());
      continue;
    }
    out.handshake.socket = std::move(*socket);
    out.handshake.end = now + kHelloMax;
    out.phase = Outbound::Phase::kConnecting;
  }
}

Deadline Rendezvous::next_event(Deadline deadline) const {
  for (const Outbound& out : outbound_) {
    if (out.phase == Outbound::Phase::kDone) continue;
    deadline = std::min(deadline,
                        out.phase == Outbound::Phase::kIdle ? out.next_attempt : out.handshake.end);
  }
  for (const Handshake& stranger : strangers_) deadline = std::min(deadline, stranger.end);
  return deadline;
}

void Rendezvous::wait(Deadline until) {
  std::vector<pollfd> waits{{listener_ == nullptr ? -1 : listener_->fd(), POLLIN, 0}};
  for (const Outbound& out : outbound_) {
    if (!out.handshake.socket) continue;
    const short events = out.phase == Outbound::Phase::kConnecting ? POLLOUT : POLLIN;
    waits.push_back({out.handshake.socket.fd(), events, 0});
  }
  for (const Handshake& stranger : strangers_) waits.push_back({stranger.socket.fd(), POLLIN, 0});
  poll(waits.data(), static_cast<nfds_t>(waits.size()), poll_timeout(until));
}

Status Rendezvous::take_new() {
  // Bounded, so that a flood of connections cannot keep the loop from its deadline.
  for (std::size_t i = 0; i < kStrangersMax && listener_ != nullptr; ++i) {
    SINEW_ASSIGN(Socket socket, listener_->accept());
    if (!socket) return {};
    if (strangers_.size() == kStrangersMax) {
      turned_away_ = "silence";
      strangers_.erase(strangers_.begin());
    }
    Handshake stranger;
    stranger.socket = std::move(socket);
    stranger.end = steady_clock::now() + kHelloMax;
    strangers_.push_back(std::move(stranger));
  }
  return {};
}

void Rendezvous::advance(Outbound& out) {
  if (out.phase == Outbound::Phase::kConnecting) {
    pollfd writable{out.handshake.socket.fd(), POLLOUT, 0};
    if (poll(&writable, 1, 0) == 1) {
      Status status = finish_connect(out.handshake.socket);
      if (status) status = say_hello(out.handshake.socket, identity_);
      if (!status) return out.retry_later(status.error());
      out.phase = Outbound::Phase::kAwaitingHello;
    }
  }
  if (out.phase == Outbound::Phase::kAwaitingHello) {
    const auto said = out.handshake.read();
    if (!said) return out.retry_later(said.error());
    if (*said) {
      const auto rank = check_hello(out.handshake.bytes, identity_);
      if (!rank) return out.retry_later(rank.error());
      if (*rank != out.peer) {
        return out.retry_later(
            Error{ErrorCode::kProtocol, fmt::format("rank {} answers there", *rank), out.peer});
      }
      sockets_[static_cast<std::size_t>(out.peer)] = std::move(out.handshake.socket);
      out.phase = Outbound::Phase::kDone;
      return;
    }
  }
  if (out.phase != Outbound::Phase::kIdle && steady_clock::now() >= out.handshake.end) {
    out.retry_later(Error{ErrorCode::kDeadline, "connects or answers too slowly", out.peer});
  }
}

void Rendezvous::advance_strangers() {
  const auto now = steady_clock::now();
  for (Handshake& stranger : strangers_) {
    const auto said = stranger.read();
    if (said && !*said) {
      if (now < stranger.end) continue;
      turned_away_ = "silence";
    } else if (!said) {
      turned_away_ = said.error().message;
    } else if (const auto rank = check_hello(stranger.bytes, identity_); !rank) {
      turned_away_ = rank.error().message;
    } else if (*rank < identity_.rank) {
      turned_away_ = fmt::format("rank {} connected, but ranks connect to lower ones", *rank);
    } else if (say_hello(stranger.socket, identity_)) {
      // A rank that connects again has given up its earlier connection.
      sockets_[static_cast<std::size_t>(*rank)] = std::move(stranger.socket);
    }
    stranger.socket.reset();
  }
  std::erase_if(strangers_, [](const Handshake& stranger) { return !stranger.socket; });
}

Error Rendezvous::missing() const {
  for (const Outbound& out : outbound_) {
    if (out.phase == Outbound::Phase::kDone) continue;
    return Error{ErrorCode::kDeadline,
                 fmt::format("rank {} at {} port {} cannot be reached over tcp: {}", out.peer,
                             out.endpoint.host, out.endpoint.port, out.trouble),
                 out.peer};
  }
  std::vector<Rank> late;
  for (Rank peer = identity_.rank + 1; peer < identity_.size; ++peer)
    if (wanted_.contains(peer) && !sockets_[static_cast<std::size_t>(peer)]) late.push_back(peer);
  const std::string hint =
      turned_away_.empty() ? "" : fmt::format(" (last connection turned away: {})", turned_away_);
  return Error{ErrorCode::kDeadline,
               fmt::format("rank {} {} not connected to rank {} at port {} over tcp{}",
                           fmt::join(late, ", "), late.size() == 1 ? "has" : "have", identity_.rank,
                           listener_->port(), hint),
               late.front()};
}

Result<std::vector<Socket>> Rendezvous::run(Deadline deadline, const std::atomic<bool>* stop) {
  while (!complete()) {
    if (stop != nullptr && *stop)
      return fail(ErrorCode::kCancelled, "this rank was told to stop connecting");
    start_attempts();
    const Deadline event = next_event(deadline);
    wait(stop == nullptr ? event : std::min(event, steady_clock::now() + kStopLookInterval));
    SINEW_TRY(take_new());
    for (Outbound& out : outbound_) advance(out);
    advance_strangers();
    if (!complete() && steady_clock::now() >= deadline) return fail(missing());
  }
  return std::move(sockets_);
}

}  // namespace

Result<std::vector<Socket>> connect_tcp_sockets(const GroupIdentity& identity,
                                                TcpListener& listener,
                                                std::span<const Endpoint> peers, Deadline deadline,
                                                const std::atomic<bool>* stop) {
  const bool valid = identity.size >= 1 && identity.size <= kRankCountMax && identity.rank >= 0 &&
                     identity.rank < identity.size;
  if (!valid || peers.size() != static_cast<std::size_t>(identity.size)) {
    return fail(ErrorCode::kUsage, "rank {} of {} was given {} endpoints", identity.rank,
                identity.size, peers.size());
  }
  Rendezvous rendezvous(identity, &listener, peers, LinkShare::everyone(identity).peers);
  return rendezvous.run(deadline, stop);
}

Result<std::vector<Socket>> await_tcp_star(const GroupIdentity& identity, TcpListener& listener,
                                           Deadline deadline) {
  Rendezvous rendezvous(identity, &listener, {}, LinkShare::everyone(identity).peers);
  return rendezvous.run(deadline);
}

Result<Socket> join_tcp_star(const GroupIdentity& identity, const Endpoint& rank_zero,
                             Deadline deadline) {
  Rendezvous rendezvous(identity, nullptr, std::span(&rank_zero, 1), RankSet{}.with(0));
  SINEW_ASSIGN(std::vector<Socket> sockets, rendezvous.run(deadline));
  return std::move(sockets.front());
}

Result<Links> connect_tcp_links(const GroupIdentity& identity, TcpListener& listener,
                                std::span<const Endpoint> peers, Deadline deadline) {
  SINEW_ASSIGN(std::vector<Socket> sockets,
               connect_tcp_sockets(identity, listener, peers, deadline));
  return make_tcp_links(std::move(sockets), LinkShare::everyone(identity));
}

}  // namespace sinew
