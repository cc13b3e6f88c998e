#include "transport/tcp_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/limits.h"
#include "transport/poll_timeout.h"
#include "transport/spin.h"

namespace sinew {
namespace {

using std::chrono::steady_clock;

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

// A header and a short body usually arrive with one system call; longer reads bypass the buffer.
constexpr std::size_t kBufferBytes = 32u << 10;

class TcpLink;

// What the links of one rank share: a wait for one of them moves the sends of all.
struct Hub {
  explicit Hub(int ranks) : spin(ranks) {}

  Spin spin;
  std::vector<TcpLink*> links;  // the living ones

  enum class For : std::uint8_t { kSend, kReceive };
  // Calls `attempt` until it is done or fails, or `deadline` passes.
  template <typename Attempt>
  Status wait(TcpLink& link, For what, Deadline deadline, const Attempt& attempt);
  void sleep(const TcpLink& link, For what, Deadline deadline) const;
};

enum class Progress : std::uint8_t { kNone, kSome, kDone };

class TcpLink final : public Link {
 public:
  TcpLink(std::shared_ptr<Hub> hub, Rank peer, Socket socket)
      : hub_(std::move(hub)), peer_(peer), socket_(std::move(socket)), buffer_(kBufferBytes) {
    hub_->links.push_back(this);
  }
  ~TcpLink() override { std::erase(hub_->links, this); }

  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "tcp"; }
  bool sending() const override { return !head_left_.empty() || !body_left_.empty(); }
  int fd() const { return socket_.fd(); }

  Status start_send(std::span<const std::byte> head, std::span<const std::byte> body) override;
  Status finish_send(Deadline deadline) override;
  Status receive(std::span<std::byte> into, Deadline deadline) override;

  // Writes what the socket takes of the pending send.
  Progress pump_send();

 private:
  Progress read_some(std::span<std::byte>& left);
  Progress take_buffered(std::span<std::byte>& left);
  Error lost(std::string_view why) const;

  // Shared by the links of a rank, which are destroyed one by one.
  std::shared_ptr<Hub> hub_;
  Rank peer_;
  Socket socket_;
  std::vector<std::byte> buffer_;  // received, not yet asked for: [buffer_begin_, buffer_end_)
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  std::span<const std::byte> head_left_;
  std::span<const std::byte> body_left_;
  std::optional<Error> send_error_;
  std::optional<Error> receive_error_;
};

template <typename Attempt>
Status Hub::wait(TcpLink& link, For what, Deadline deadline, const Attempt& attempt) {
  spin.restart();
  while (true) {
    const Progress progress = attempt();
    if (progress == Progress::kDone) return {};
    bool moved = progress == Progress::kSome;
    for (TcpLink* other : links) moved = other->pump_send() == Progress::kSome || moved;
    if (moved) {
      spin.restart();
      continue;
    }
    const auto now = steady_clock::now();
    if (now >= deadline) break;
    if (spin.turn(now)) continue;
    sleep(link, what, deadline);
    spin.restart();
  }
  return fail(Error{ErrorCode::kDeadline,
                    fmt::format("rank {} did not answer over tcp in time", link.peer()),
                    link.peer()});
}

void Hub::sleep(const TcpLink& link, For what, Deadline deadline) const {
  std::array<pollfd, kRankCountMax> waits{};
  nfds_t count = 0;
  for (const TcpLink* other : links) {
    const bool reads = other == &link && what == For::kReceive;
    const int events = (reads ? POLLIN : 0) | (other->sending() ? POLLOUT : 0);
    if (events == 0) continue;
    waits[count++] = pollfd{other->fd(), static_cast<short>(events), 0};
  }
  poll(waits.data(), count, poll_timeout(deadline));
}

Error TcpLink::lost(std::string_view why) const {
  return Error{ErrorCode::kPeerLost, fmt::format("rank {} {}", peer_, why), peer_};
}

Progress TcpLink::pump_send() {
  if (!sending()) return Progress::kNone;
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  for (const auto left : {head_left_, body_left_}) {
    if (left.empty()) continue;
    parts[count++] = iovec{const_cast<std::byte*>(left.data()), left.size()};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = sendmsg(socket_.fd(), &message, kSendFlags);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Progress::kNone;
    send_error_ = lost(fmt::format("broke its tcp link: {}", std::strerror(errno)));
    head_left_ = {};
    body_left_ = {};
    return Progress::kDone;
  }
  const auto moved = static_cast<std::size_t>(sent);
  const std::size_t of_head = std::min(moved, head_left_.size());
  head_left_ = head_left_.subspan(of_head);
  body_left_ = body_left_.subspan(moved - of_head);
  return moved == 0 ? Progress::kNone : Progress::kSome;
}

Progress TcpLink::take_buffered(std::span<std::byte>& left) {
  const std::size_t count = std::min(left.size(), buffer_end_ - buffer_begin_);
  if (count > 0) std::memcpy(left.data(), buffer_.data() + buffer_begin_, count);
  buffer_begin_ += count;
  left = left.subspan(count);
  if (left.empty()) return Progress::kDone;
  return count > 0 ? Progress::kSome : Progress::kNone;
}

Progress TcpLink::read_some(std::span<std::byte>& left) {
  if (const Progress taken = take_buffered(left); taken != Progress::kNone) return taken;
  const bool direct = left.size() >= buffer_.size();
  std::byte* into = direct ? left.data() : buffer_.data();
  const ssize_t got = recv(socket_.fd(), into, direct ? left.size() : buffer_.size(), 0);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Progress::kNone;
    receive_error_ = lost(fmt::format("broke its tcp link: {}", std::strerror(errno)));
    return Progress::kDone;
  }
  if (got == 0) {
    receive_error_ = lost("closed its tcp link");
    return Progress::kDone;
  }
  if (!direct) {
    buffer_begin_ = 0;
    buffer_end_ = static_cast<std::size_t>(got);
    return take_buffered(left);
  }
  left = left.subspan(static_cast<std::size_t>(got));
  return left.empty() ? Progress::kDone : Progress::kSome;
}

Status TcpLink::start_send(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (send_error_) return fail(*send_error_);
  SINEW_ASSERT(!sending());
  head_left_ = head;
  body_left_ = body;
  pump_send();
  return {};
}

Status TcpLink::finish_send(Deadline deadline) {
  if (!send_error_ && sending()) {
    const Status waited = hub_->wait(*this, Hub::For::kSend, deadline, [this] {
      const Progress progress = pump_send();
      return sending() ? progress : Progress::kDone;
    });
    if (!waited) {
      send_error_ = waited.error();
      head_left_ = {};
      body_left_ = {};
    }
  }
  return send_error_ ? Status(fail(*send_error_)) : Status();
}

Status TcpLink::receive(std::span<std::byte> into, Deadline deadline) {
  if (receive_error_) return fail(*receive_error_);
  std::span<std::byte> left = into;
  if (left.empty()) return {};
  const Status waited =
      hub_->wait(*this, Hub::For::kReceive, deadline, [this, &left] { return read_some(left); });
  if (!waited) receive_error_ = waited.error();
  return receive_error_ ? Status(fail(*receive_error_)) : Status();
}

}  // namespace

Links make_tcp_links(const GroupIdentity& identity, std::vector<Socket> sockets) {
  SINEW_ASSERT(sockets.size() == static_cast<std::size_t>(identity.size));
  auto hub = std::make_shared<Hub>(identity.size);
  Links links(sockets.size());
  for (Rank peer = 0; peer < identity.size; ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (peer == identity.rank) continue;
    links[index] = std::make_unique<TcpLink>(hub, peer, std::move(sockets[index]));
  }
  return links;
}

}  // namespace sinew
