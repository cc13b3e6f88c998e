#include "agent/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/poll_timeout.h"

namespace sinew {
namespace {

constexpr int kBacklog = 8;
constexpr std::size_t kReplyMax = 16u << 20;
#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif
using Clock = std::chrono::steady_clock;

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return fail(ErrorCode::kUsage, "the path {} is too long for a socket: use a shorter --state",
                path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Descriptor> make_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (socket.get() < 0 || ::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0 ||
      ::fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0)
    return fail(ErrorCode::kIo, "cannot make a socket: {}", std::strerror(errno));
  return socket;
}

bool would_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::create(const std::string& path) {
  SINEW_ASSIGN(const sockaddr_un address, socket_address(path));
  SINEW_ASSIGN(Descriptor socket, make_socket());
  ::unlink(path.c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(socket.get(), kBacklog) != 0)
    return fail(ErrorCode::kIo, "cannot listen on {}: {}", path, std::strerror(errno));
  return std::unique_ptr<ControlSocket>(new ControlSocket(path, std::move(socket)));
}

ControlSocket::~ControlSocket() {
  ::unlink(path_.c_str());
}

void ControlSocket::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({socket_.get(), POLLIN, 0});
  for (const auto& client : clients_)
    polls.push_back(
        {client->socket.get(), static_cast<short>(client->answering ? POLLOUT : POLLIN), 0});
}

void ControlSocket::serve(const std::function<std::string(const std::string&)>& answer) {
  while (clients_.size() < kClientsMax) {
    Descriptor socket(::accept(socket_.get(), nullptr, nullptr));
    if (socket.get() < 0) break;
    ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
    auto client = std::make_unique<Client>();
    client->socket = std::move(socket);
    client->end = Clock::now() + kClientTime;
    clients_.push_back(std::move(client));
  }
  for (const auto& client : clients_) {
    if (!client->answering) receive(*client);
    const std::size_t end = client->request.find('\n');
    if (!client->answering && end != std::string::npos) {
      client->reply = answer(client->request.substr(0, end));
      client->answering = true;
    }
    if (client->answering) send(*client);
    if (Clock::now() > client->end) client->done = true;
  }
  std::erase_if(clients_, [](const auto& client) { return client->done; });
}

void ControlSocket::receive(Client& client) {
  std::array<char, kRequestMax> buffer{};
  const ssize_t got = ::recv(client.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && would_wait()) return;
  if (got > 0) client.request.append(buffer.data(), static_cast<std::size_t>(got));
  if (got <= 0 || client.request.size() > kRequestMax) client.done = true;
}

void ControlSocket::send(Client& client) {
  while (client.sent < client.reply.size()) {
    const ssize_t sent = ::send(client.socket.get(), client.reply.data() + client.sent,
                                client.reply.size() - client.sent, kSendFlags);
    if (sent < 0 && would_wait()) return;
    if (sent < 0) break;
    client.sent += static_cast<std::size_t>(sent);
  }
  client.done = true;
}

Result<std::string> ask_agent(const std::string& path, const std::string& request,
                              std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  SINEW_ASSIGN(const sockaddr_un address, socket_address(path));
  SINEW_ASSIGN(const Descriptor socket, make_socket());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return fail(ErrorCode::kNotFound,
                "no agent runs here ({}: {}): start one with 'sinew node', or name its folder with "
                "--state",
                path, std::strerror(errno));
  const std::string line = request + "\n";
  if (::send(socket.get(), line.data(), line.size(), kSendFlags) !=
      static_cast<ssize_t>(line.size()))
    return fail(ErrorCode::kIo, "cannot ask the agent: {}", std::strerror(errno));
  std::string reply;
  std::array<char, 16384> buffer{};
  while (true) {
    pollfd ready{socket.get(), POLLIN, 0};
    ::poll(&ready, 1, poll_timeout(end));
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) reply.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0) break;
    if (got < 0 && !would_wait())
      return fail(ErrorCode::kIo, "the agent's answer broke off: {}", std::strerror(errno));
    if (reply.size() > kReplyMax) return fail(ErrorCode::kIo, "the agent's answer has no end");
    if (Clock::now() >= end)
      return fail(ErrorCode::kDeadline,
                  "the agent does not answer: look at its log, or restart it");
  }
  return reply;
}

}  // namespace sinew
