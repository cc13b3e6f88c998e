#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/group.h"
#include "collective/link.h"
#include "transport/tcp_socket.h"

namespace sinew {

// The side channel of a verbs or ucx link is the TCP connection of the pair. While the link is
// brought up it carries messages; later nothing but a farewell, so that whatever ends it tells of
// the peer's end, which such links report late, or not at all.

inline constexpr std::size_t kSideMessageMax = 16384;  // bytes

// One message of bring-up; kPeerLost, kDeadline and kProtocol name the peer.
Status send_side(const Socket& socket, Rank peer, std::span<const std::byte> message,
                 Deadline deadline);
Result<std::vector<std::byte>> receive_side(const Socket& socket, Rank peer, Deadline deadline);

// Sends `mine` to every rank of `peers` and returns what each of them sent, by rank. Sockets hold
// what is under way, so nobody waits for each other in a circle.
Result<std::vector<std::vector<std::byte>>> exchange_side(const std::vector<Socket>& sockets,
                                                          RankSet peers,
                                                          std::span<const std::byte> mine,
                                                          Deadline deadline);

// Messages that a side has sent, on each of its rails if it has several, said when it closes: what
// was sent before is still delivered, and nothing more is waited for.
inline constexpr std::size_t kSideCounts = 4;
using SentCounts = std::array<std::uint64_t, kSideCounts>;
void say_farewell(const Socket& socket, const SentCounts& sent);

class FarewellReader {
 public:
  // Takes what has come, without waiting. False once the peer has closed, died or broken the
  // protocol.
  bool read(const Socket& socket);
  // Whether the peer said farewell before it closed.
  bool said() const;
  // 0 without a farewell.
  std::uint64_t sent(std::size_t rail) const;

 private:
  static constexpr std::size_t kBytes = 8 + kSideCounts * 8;
  friend void say_farewell(const Socket& socket, const SentCounts& sent);

  std::array<std::byte, kBytes> bytes_{};
  std::size_t got_ = 0;
};

}  // namespace sinew
