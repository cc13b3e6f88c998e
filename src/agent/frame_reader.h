#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cluster/node.h"

namespace sinew {

// Messages on an authenticated control connection: length u32 of what follows | kind u8 | payload.
enum class FrameKind : std::uint8_t {
  kHello = 1,   // first on each side: who I am
  kProbe,       // 8 bytes, sent back as kProbeReply
  kProbeReply,  //
  kCluster,     // of the cluster's core
  kRefused,     // one line: why the sender closes
};

inline constexpr std::size_t kFrameHeaderBytes = 5;
inline constexpr std::size_t kFramePayloadMax = kClusterMessageBytesMax;
inline constexpr std::size_t kRefusalMax = 512;

struct ControlFrame {
  FrameKind kind = FrameKind::kHello;
  std::vector<std::byte> payload;
};

std::vector<std::byte> encode_control_frame(FrameKind kind, ByteSpan payload);

// Takes a stream of bytes apart. Holds less than one frame between calls, and allocates for bytes
// that have come, never for a length that was announced.
class FrameReader {
 public:
  void append(ByteSpan bytes);
  // The next whole frame; nothing while it is not there. kProtocol for a length or kind outside the
  // limits: then the stream is finished, and every later call says the same.
  Result<std::optional<ControlFrame>> next();

 private:
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace sinew
