#include "transport/tcp_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace sinew {
namespace {

constexpr int kBacklog = 64;

tl::unexpected<Error> system_failure(ErrorCode code, std::string_view what) {
  return fail(code, "{}: {}", what, std::strerror(errno));
}

struct FreeAddress {
  void operator()(addrinfo* address) const { freeaddrinfo(address); }
};
using Address = std::unique_ptr<addrinfo, FreeAddress>;

Result<Address> parse(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (const int code = getaddrinfo(host.c_str(), service.c_str(), &hints, &found); code != 0) {
    return fail(ErrorCode::kUsage, "'{}' is not an IP address ({})", host, gai_strerror(code));
  }
  return Address(found);
}

Status set_option(const Socket& socket, int level, int name, int value, std::string_view what) {
  if (setsockopt(socket.fd(), level, name, &value, sizeof(value)) == 0) return {};
  return system_failure(ErrorCode::kIo, what);
}

Status make_non_blocking(const Socket& socket) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  if (flags >= 0 && fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK) == 0 &&
      fcntl(socket.fd(), F_SETFD, FD_CLOEXEC) == 0) {
    return {};
  }
  return system_failure(ErrorCode::kIo, "fcntl of a socket");
}

}  // namespace

void Socket::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Status prepare_stream(const Socket& socket) {
  SINEW_TRY(make_non_blocking(socket));
  SINEW_TRY(set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  SINEW_TRY(set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
#ifdef SO_NOSIGPIPE
  SINEW_TRY(set_option(socket, SOL_SOCKET, SO_NOSIGPIPE, 1, "SO_NOSIGPIPE"));
#endif
  // A peer whose machine vanished is noticed after 5 s + 3 x 5 s even while nothing is sent.
#ifdef TCP_KEEPIDLE
  SINEW_TRY(set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5, "TCP_KEEPIDLE"));
#endif
#ifdef TCP_KEEPINTVL
  SINEW_TRY(set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5, "TCP_KEEPINTVL"));
#endif
#ifdef TCP_KEEPCNT
  SINEW_TRY(set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
#endif
  return {};
}

Result<Socket> start_connect(const Endpoint& endpoint) {
  SINEW_ASSIGN(const Address address, parse(endpoint.host, endpoint.port, 0));
  Socket socket(::socket(address->ai_family, SOCK_STREAM, 0));
  if (!socket) return system_failure(ErrorCode::kIo, "socket");
  SINEW_TRY(prepare_stream(socket));
  if (connect(socket.fd(), address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS) {
    return socket;
  }
  return system_failure(ErrorCode::kPeerLost, "connect");
}

Status finish_connect(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) return {};
  return fail(ErrorCode::kPeerLost, "connect: {}", std::strerror(error));
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

Result<TcpListener> TcpListener::bind(const std::string& host, std::uint16_t port) {
  SINEW_ASSIGN(const Address address, parse(host, port, AI_PASSIVE));
  Socket socket(::socket(address->ai_family, SOCK_STREAM, 0));
  if (!socket) return system_failure(ErrorCode::kIo, "socket");
  SINEW_TRY(make_non_blocking(socket));
  SINEW_TRY(set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  if (::bind(socket.fd(), address->ai_addr, address->ai_addrlen) != 0 ||
      listen(socket.fd(), kBacklog) != 0) {
    return system_failure(ErrorCode::kIo, fmt::format("cannot listen on {} port {}", host, port));
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return system_failure(ErrorCode::kIo, "getsockname");
  }
  const std::uint16_t number = bound.ss_family == AF_INET6
                                   ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                   : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return TcpListener(std::move(socket), ntohs(number));
}

Result<Socket> TcpListener::accept() {
  Socket socket(::accept(socket_.fd(), nullptr, nullptr));
  if (socket) {
    SINEW_TRY(prepare_stream(socket));
    return socket;
  }
  // A connection that was gone before it was taken, or no descriptor left just now: as if none had
  // come.
  const bool none = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ||
                    errno == ECONNABORTED || errno == EMFILE || errno == ENFILE;
  if (none) return Socket();
  return system_failure(ErrorCode::kIo, "accept");
}

}  // namespace sinew
