#include "transport/ucx_side.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/poll_timeout.h"

namespace sinew {
namespace {

constexpr std::uint64_t kFarewell = 0x454e4f4758574e53;  // "SNWXGONE"

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// Both directions of the exchange with one peer.
class Exchange {
 public:
  Exchange(Rank peer, const Socket& socket, std::span<const std::byte> message)
      : peer_(peer), socket_(socket), left_(message), incoming_(sizeof(std::uint32_t)) {}

  Rank peer() const { return peer_; }
  bool done() const { return left_.empty() && complete_; }
  pollfd wait() const {
    return {socket_.fd(),
            static_cast<short>((left_.empty() ? 0 : POLLOUT) | (complete_ ? 0 : POLLIN)), 0};
  }
  Status advance() {
    SINEW_TRY(send_some());
    return complete_ ? Status() : receive_some();
  }
  std::vector<std::byte> address() const {
    return {incoming_.begin() + sizeof(std::uint32_t), incoming_.end()};
  }

 private:
  Status lost(std::string_view why) const {
    return fail(Error{ErrorCode::kPeerLost,
                      fmt::format("rank {} left before it told its ucx address: {}", peer_, why),
                      peer_});
  }
  Status send_some() {
    while (!left_.empty()) {
      const ssize_t sent = send(socket_.fd(), left_.data(), left_.size(), kSendFlags);
      if (sent < 0) return would_block() ? Status() : lost(std::strerror(errno));
      left_ = left_.subspan(static_cast<std::size_t>(sent));
    }
    return {};
  }
  Status receive_some() {
    while (true) {
      const ssize_t got = recv(socket_.fd(), incoming_.data() + got_, incoming_.size() - got_, 0);
      if (got == 0) return lost("closed");
      if (got < 0) return would_block() ? Status() : lost(std::strerror(errno));
      got_ += static_cast<std::size_t>(got);
      if (got_ < incoming_.size()) continue;
      complete_ = got_ > sizeof(std::uint32_t);
      if (complete_) return {};
      std::uint32_t length = 0;
      std::memcpy(&length, incoming_.data(), sizeof(length));
      if (length == 0 || length > kUcxAddressMax) {
        return fail(Error{ErrorCode::kProtocol,
                          fmt::format("rank {} announces a ucx address of {} bytes", peer_, length),
                          peer_});
      }
      incoming_.resize(sizeof(length) + length);
    }
  }

  Rank peer_;
  const Socket& socket_;
  std::span<const std::byte> left_;
  std::vector<std::byte> incoming_;  // a length (u32), then as many bytes
  std::size_t got_ = 0;
  bool complete_ = false;
};

}  // namespace

Result<std::vector<std::vector<std::byte>>> exchange_addresses(const std::vector<Socket>& sockets,
                                                               RankSet peers,
                                                               std::span<const std::byte> mine,
                                                               Deadline deadline) {
  const auto length = static_cast<std::uint32_t>(mine.size());
  const auto length_bytes = std::as_bytes(std::span(&length, 1));
  std::vector<std::byte> message(length_bytes.begin(), length_bytes.end());
  message.insert(message.end(), mine.begin(), mine.end());
  std::vector<Exchange> exchanges;
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
    if (peers.contains(static_cast<Rank>(peer)))
      exchanges.emplace_back(static_cast<Rank>(peer), sockets[peer], message);
  }
  while (true) {
    std::vector<pollfd> waits;
    Rank late = -1;
    for (Exchange& exchange : exchanges) {
      SINEW_TRY(exchange.advance());
      if (exchange.done()) continue;
      waits.push_back(exchange.wait());
      if (late < 0) late = exchange.peer();
    }
    if (waits.empty()) break;
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(Error{ErrorCode::kDeadline,
                        fmt::format("rank {} has not told its ucx address in time", late), late});
    }
    poll(waits.data(), static_cast<nfds_t>(waits.size()), poll_timeout(deadline));
  }
  std::vector<std::vector<std::byte>> addresses(sockets.size());
  for (const Exchange& exchange : exchanges)
    addresses[static_cast<std::size_t>(exchange.peer())] = exchange.address();
  return addresses;
}

bool on_same_machine(const Socket& socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof(own);
  socklen_t peer_length = sizeof(peer);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0 ||
      own.ss_family != peer.ss_family)
    return false;
  if (own.ss_family == AF_INET) {
    const auto address = [](const sockaddr_storage& of) {
      return reinterpret_cast<const sockaddr_in&>(of).sin_addr.s_addr;
    };
    return address(own) == address(peer);
  }
  return own.ss_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(own).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, sizeof(in6_addr)) == 0;
}

void say_farewell(const Socket& socket, std::uint64_t sent) {
  const std::array<std::uint64_t, 2> words{kFarewell, sent};
  // Nothing else travels on the socket, so it takes 16 bytes; to a peer that is gone there is
  // nothing to say.
  static_cast<void>(send(socket.fd(), words.data(), sizeof(words), kSendFlags));
}

bool FarewellReader::read(const Socket& socket) {
  while (true) {
    std::array<std::byte, 16> beyond{};
    const bool full = got_ == bytes_.size();
    std::byte* into = full ? beyond.data() : bytes_.data() + got_;
    const ssize_t got = recv(socket.fd(), into, full ? beyond.size() : bytes_.size() - got_, 0);
    if (got < 0) return would_block();
    if (got == 0) return false;
    // More than a farewell is no farewell: the peer is as good as gone.
    if (full) {
      bytes_ = {};
      return false;
    }
    got_ += static_cast<std::size_t>(got);
  }
}

std::optional<std::uint64_t> FarewellReader::sent() const {
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), bytes_.data(), sizeof(words));
  if (got_ != bytes_.size() || words[0] != kFarewell) return std::nullopt;
  return words[1];
}

}  // namespace sinew
