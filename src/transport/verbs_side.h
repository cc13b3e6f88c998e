#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/link.h"
#include "transport/tcp_socket.h"

namespace sinew {

// The side channel of a verbs link is the TCP connection of the pair. While verbs is brought up it
// carries messages; later nothing but a farewell, so that whatever ends it tells of the peer's end.

inline constexpr std::size_t kVerbsRailsMax = 4;      // cables used between two ranks
inline constexpr std::size_t kSideMessageMax = 8192;  // bytes

// One message of bring-up; kPeerLost or kDeadline name the peer.
Status send_side(const Socket& socket, Rank peer, std::span<const std::byte> message,
                 Deadline deadline);
Result<std::vector<std::byte>> receive_side(const Socket& socket, Rank peer, Deadline deadline);

// Messages that a side has sent on each rail, said when it closes: what was sent before is still
// delivered, and nothing more is waited for.
using RailCounts = std::array<std::uint64_t, kVerbsRailsMax>;
void say_farewell(const Socket& socket, const RailCounts& sent);

class FarewellReader {
 public:
  // Takes what has come, without waiting. False once the peer has closed, died or broken the
  // protocol.
  bool read(const Socket& socket);
  // All zero without a farewell.
  std::uint64_t sent(std::size_t rail) const;

 private:
  static constexpr std::size_t kBytes = 8 + kVerbsRailsMax * 8;
  friend void say_farewell(const Socket& socket, const RailCounts& sent);

  std::array<std::byte, kBytes> bytes_{};
  std::size_t got_ = 0;
};

}  // namespace sinew
