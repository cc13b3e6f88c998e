#include "transport/verbs_side.h"

#include <poll.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "transport/poll_timeout.h"

namespace sinew {
namespace {

static_assert(std::endian::native == std::endian::little, "counts are copied as they lie");

constexpr std::uint64_t kFarewellMagic = 0x6577656c56574e53;  // "SNWVlewe"

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

Error lost(Rank peer, std::string_view why) {
  return Error{ErrorCode::kPeerLost,
               fmt::format("rank {} left while verbs was brought up: {}", peer, why), peer};
}

Status wait_for(const Socket& socket, Rank peer, short events, Deadline deadline) {
  if (std::chrono::steady_clock::now() >= deadline) {
    return fail(Error{
        ErrorCode::kDeadline,
        fmt::format("rank {} did not answer in time while verbs was brought up", peer), peer});
  }
  pollfd wait{socket.fd(), events, 0};
  poll(&wait, 1, poll_timeout(deadline));
  return {};
}

Status send_all(const Socket& socket, Rank peer, std::span<const std::byte> left,
                Deadline deadline) {
  while (!left.empty()) {
    const ssize_t sent = send(socket.fd(), left.data(), left.size(), kSendFlags);
    if (sent >= 0) {
      left = left.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (!would_block()) return fail(lost(peer, std::strerror(errno)));
    SINEW_TRY(wait_for(socket, peer, POLLOUT, deadline));
  }
  return {};
}

Status receive_all(const Socket& socket, Rank peer, std::span<std::byte> left, Deadline deadline) {
  while (!left.empty()) {
    const ssize_t got = recv(socket.fd(), left.data(), left.size(), 0);
    if (got == 0) return fail(lost(peer, "it closed the side channel"));
    if (got > 0) {
      left = left.subspan(static_cast<std::size_t>(got));
      continue;
    }
    if (!would_block()) return fail(lost(peer, std::strerror(errno)));
    SINEW_TRY(wait_for(socket, peer, POLLIN, deadline));
  }
  return {};
}

}  // namespace

Status send_side(const Socket& socket, Rank peer, std::span<const std::byte> message,
                 Deadline deadline) {
  SINEW_ASSERT(message.size() <= kSideMessageMax);
  const auto length = static_cast<std::uint32_t>(message.size());
  SINEW_TRY(send_all(socket, peer, std::as_bytes(std::span(&length, 1)), deadline));
  return send_all(socket, peer, message, deadline);
}

Result<std::vector<std::byte>> receive_side(const Socket& socket, Rank peer, Deadline deadline) {
  std::uint32_t length = 0;
  SINEW_TRY(receive_all(socket, peer, std::as_writable_bytes(std::span(&length, 1)), deadline));
  if (length > kSideMessageMax) {
    return fail(Error{ErrorCode::kProtocol,
                      fmt::format("rank {} announces {} bytes on the side channel, at most {}",
                                  peer, length, kSideMessageMax),
                      peer});
  }
  std::vector<std::byte> message(length);
  SINEW_TRY(receive_all(socket, peer, message, deadline));
  return message;
}

void say_farewell(const Socket& socket, const RailCounts& sent) {
  std::array<std::byte, FarewellReader::kBytes> bytes{};
  std::memcpy(bytes.data(), &kFarewellMagic, sizeof(kFarewellMagic));
  std::memcpy(bytes.data() + sizeof(kFarewellMagic), sent.data(), sizeof(sent));
  // Nothing else was sent since bring-up, so it fits; without it the peer learns of the end alone.
  static_cast<void>(send(socket.fd(), bytes.data(), bytes.size(), kSendFlags));
}

bool FarewellReader::read(const Socket& socket) {
  while (true) {
    std::byte excess{};
    const bool whole = got_ == bytes_.size();
    const ssize_t got = recv(socket.fd(), whole ? &excess : bytes_.data() + got_,
                             whole ? 1 : bytes_.size() - got_, MSG_DONTWAIT);
    if (got < 0) return would_block();
    if (got == 0 || whole) return false;
    got_ += static_cast<std::size_t>(got);
  }
}

std::uint64_t FarewellReader::sent(std::size_t rail) const {
  std::uint64_t magic = 0;
  std::memcpy(&magic, bytes_.data(), sizeof(magic));
  if (got_ != bytes_.size() || magic != kFarewellMagic) return 0;
  std::uint64_t count = 0;
  std::memcpy(&count, bytes_.data() + sizeof(magic) + rail * sizeof(count), sizeof(count));
  return count;
}

}  // namespace sinew
