#include "transport/tcp_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "base/limits.h"
#include "transport/poll_timeout.h"

namespace sinew {
namespace {

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

// A header and a short body usually arrive with one system call; longer reads bypass the buffer.
constexpr std::size_t kBufferBytes = 32u << 10;

class TcpLink;

// Sleeps on the awaited socket and on those that have something to send.
class TcpSleeper final : public LinkSleeper {
 public:
  void add(TcpLink& link) { links_.push_back(&link); }
  void remove(TcpLink& link) { std::erase(links_, &link); }

  // The kernel remembers what comes while nobody sleeps.
  void arm(const StreamLink&) override {}
  void disarm() override {}
  void sleep(const StreamLink& awaited, Direction direction, Deadline until) override;

 private:
  std::vector<TcpLink*> links_;  // the living ones
};

class TcpLink final : public StreamLink {
 public:
  TcpLink(std::shared_ptr<LinkHub> hub, std::shared_ptr<TcpSleeper> sleeper, Rank peer,
          Socket socket)
      : StreamLink(std::move(hub), peer),
        sleeper_(std::move(sleeper)),
        socket_(std::move(socket)),
        buffer_(kBufferBytes) {
    sleeper_->add(*this);
  }
  ~TcpLink() override { sleeper_->remove(*this); }

  std::string_view kind() const override { return "tcp"; }
  int fd() const { return socket_.fd(); }

 private:
  // Writes what the socket takes of the pending send.
  Progress push() override;
  Progress pull(std::span<std::byte>& left) override;
  LinkSleeper& sleeper() override { return *sleeper_; }

  Progress take_buffered(std::span<std::byte>& left);

  // Shared by the tcp links of a rank, which are destroyed one by one.
  std::shared_ptr<TcpSleeper> sleeper_;
  Socket socket_;
  std::vector<std::byte> buffer_;  // received, not yet asked for: [buffer_begin_, buffer_end_)
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
};

void TcpSleeper::sleep(const StreamLink& awaited, Direction direction, Deadline until) {
  std::array<pollfd, kRankCountMax> waits{};
  nfds_t count = 0;
  for (const TcpLink* other : links_) {
    const bool reads = other == &awaited && direction == Direction::kReceive;
    const int events = (reads ? POLLIN : 0) | (other->sending() ? POLLOUT : 0);
    if (events == 0) continue;
    waits[count++] = pollfd{other->fd(), static_cast<short>(events), 0};
  }
  poll(waits.data(), count, poll_timeout(until));
}

Progress TcpLink::push() {
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  for (const auto left : {head_left(), body_left()}) {
    if (left.empty()) continue;
    parts[count++] = iovec{const_cast<std::byte*>(left.data()), left.size()};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = sendmsg(socket_.fd(), &message, kSendFlags);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Progress::kNone;
    return stop_sending(lost(fmt::format("broke its tcp link: {}", std::strerror(errno))));
  }
  take(static_cast<std::size_t>(sent));
  return sent == 0 ? Progress::kNone : Progress::kSome;
}

Progress TcpLink::take_buffered(std::span<std::byte>& left) {
  const std::size_t count = std::min(left.size(), buffer_end_ - buffer_begin_);
  if (count > 0) std::memcpy(left.data(), buffer_.data() + buffer_begin_, count);
  buffer_begin_ += count;
  left = left.subspan(count);
  if (left.empty()) return Progress::kDone;
  return count > 0 ? Progress::kSome : Progress::kNone;
}

Progress TcpLink::pull(std::span<std::byte>& left) {
  if (const Progress taken = take_buffered(left); taken != Progress::kNone) return taken;
  const bool direct = left.size() >= buffer_.size();
  std::byte* into = direct ? left.data() : buffer_.data();
  const ssize_t got = recv(socket_.fd(), into, direct ? left.size() : buffer_.size(), 0);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Progress::kNone;
    return stop_receiving(lost(fmt::format("broke its tcp link: {}", std::strerror(errno))));
  }
  if (got == 0) return stop_receiving(lost("closed its tcp link"));
  if (!direct) {
    buffer_begin_ = 0;
    buffer_end_ = static_cast<std::size_t>(got);
    return take_buffered(left);
  }
  left = left.subspan(static_cast<std::size_t>(got));
  return left.empty() ? Progress::kDone : Progress::kSome;
}

}  // namespace

Links make_tcp_links(std::vector<Socket> sockets, const LinkShare& share) {
  auto sleeper = std::make_shared<TcpSleeper>();
  Links links(sockets.size());
  for (std::size_t index = 0; index < sockets.size(); ++index) {
    const auto peer = static_cast<Rank>(index);
    if (!share.peers.contains(peer)) continue;
    SINEW_ASSERT(sockets[index]);
    links[index] = std::make_unique<TcpLink>(share.hub, sleeper, peer, std::move(sockets[index]));
  }
  return links;
}

}  // namespace sinew
