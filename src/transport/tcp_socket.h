#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace sinew {

// Where a rank listens. `host` is an IPv4 or IPv6 address, not a name: looking names up has no
// deadline.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};

// Owns a descriptor of a non-blocking stream socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { reset(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();
  // Gives the descriptor away.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Non-blocking, not inherited by programs this one starts, no delay for small messages, keep-alive
// probes, no signal on a write to a closed peer.
Status prepare_stream(const Socket& socket);

// Begins to connect; the socket becomes writable when that has ended, well or not.
Result<Socket> start_connect(const Endpoint& endpoint);
// How a connect ended: kPeerLost with the system's reason.
Status finish_connect(const Socket& socket);

// Whether both ends of a connection have the same address, which no two machines of one network
// have.
bool on_same_machine(const Socket& socket);

class TcpListener {
 public:
  // Port 0: any free one.
  static Result<TcpListener> bind(const std::string& host, std::uint16_t port);

  std::uint16_t port() const { return port_; }
  int fd() const { return socket_.fd(); }
  // The next waiting connection, or an empty socket if there is none.
  Result<Socket> accept();

 private:
  TcpListener(Socket socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}

  Socket socket_;
  std::uint16_t port_ = 0;
};

}  // namespace sinew
