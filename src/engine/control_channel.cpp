#include "engine/control_channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace sinew {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;
constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

}  // namespace

ControlChannel::ControlChannel(Descriptor socket) : socket_(std::move(socket)) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
#ifdef SO_NOSIGPIPE
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
}

Status ControlChannel::send(const ControlMessage& message) {
  const std::vector<std::byte> bytes = encode_control(message);
  if (bytes.size() > kControlBytesMax)
    return fail(ErrorCode::kProtocol, "a control message of {} bytes is longer than {}",
                bytes.size(), kControlBytesMax);
  const auto length = static_cast<std::uint32_t>(bytes.size());
  const auto* length_bytes = reinterpret_cast<const std::byte*>(&length);
  outgoing_.insert(outgoing_.end(), length_bytes, length_bytes + kLengthBytes);
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
  return send_queued();
}

Status ControlChannel::send_queued() {
  while (has_unsent()) {
    const ssize_t sent =
        ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, kSendFlags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (sent < 0)
      return fail(ErrorCode::kPeerLost, "the control channel is broken: {}", std::strerror(errno));
    sent_ += static_cast<std::size_t>(sent);
  }
  outgoing_.clear();
  sent_ = 0;
  return {};
}

Status ControlChannel::receive(std::vector<ControlMessage>& messages) {
  Status end;
  while (true) {
    const std::size_t have = incoming_.size();
    incoming_.resize(have + kReadBytes);
    const ssize_t got = ::recv(socket_.get(), incoming_.data() + have, kReadBytes, 0);
    incoming_.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      end = fail(ErrorCode::kPeerLost, "the control channel was closed");
      break;
    }
    if (incoming_.size() > kControlBytesMax + kReadBytes)
      break;  // taken apart below before more is read
  }
  std::size_t at = 0;
  while (incoming_.size() - at >= kLengthBytes) {
    std::uint32_t length = 0;
    std::memcpy(&length, incoming_.data() + at, kLengthBytes);
    if (length > kControlBytesMax)
      return fail(ErrorCode::kProtocol, "a control message announces {} bytes", length);
    if (incoming_.size() - at - kLengthBytes < length) break;
    SINEW_ASSIGN(ControlMessage message,
                 decode_control(std::span(incoming_).subspan(at + kLengthBytes, length)));
    messages.push_back(std::move(message));
    at += kLengthBytes + length;
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(at));
  return end;
}

}  // namespace sinew
