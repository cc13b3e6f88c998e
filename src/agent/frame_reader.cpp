#include "agent/frame_reader.h"

#include <cstring>

#include "base/assert.h"

namespace sinew {
namespace {

std::size_t payload_max(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello:
      return 256;
    case FrameKind::kProbe:
    case FrameKind::kProbeReply:
      return 8;
    case FrameKind::kCluster:
      return kFramePayloadMax;
    case FrameKind::kRefused:
      return kRefusalMax;
  }
  return 0;
}

}  // namespace

std::vector<std::byte> encode_control_frame(FrameKind kind, ByteSpan payload) {
  SINEW_ASSERT(payload.size() <= payload_max(kind));
  const auto length = static_cast<std::uint32_t>(payload.size() + 1);
  std::vector<std::byte> frame(kFrameHeaderBytes + payload.size());
  std::memcpy(frame.data(), &length, sizeof(length));
  frame[sizeof(length)] = static_cast<std::byte>(kind);
  if (!payload.empty())
    std::memcpy(frame.data() + kFrameHeaderBytes, payload.data(), payload.size());
  return frame;
}

void FrameReader::append(ByteSpan bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<ControlFrame>> FrameReader::next() {
  const std::size_t have = bytes_.size() - at_;
  if (have < kFrameHeaderBytes) return std::optional<ControlFrame>();
  std::uint32_t length = 0;
  std::memcpy(&length, bytes_.data() + at_, sizeof(length));
  const auto kind = static_cast<FrameKind>(bytes_[at_ + sizeof(length)]);
  if (kind < FrameKind::kHello || kind > FrameKind::kRefused)
    return fail(ErrorCode::kProtocol, "a control message of unknown kind {}",
                static_cast<int>(kind));
  if (length == 0 || length - 1 > payload_max(kind))
    return fail(ErrorCode::kProtocol, "a control message of kind {} announces {} bytes",
                static_cast<int>(kind), length);
  if (have < sizeof(length) + length) return std::optional<ControlFrame>();
  const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(at_ + kFrameHeaderBytes);
  ControlFrame frame{kind, {begin, begin + (length - 1)}};
  at_ += sizeof(length) + length;
  return std::optional<ControlFrame>(std::move(frame));
}

}  // namespace sinew
