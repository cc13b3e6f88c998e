#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/group.h"
#include "collective/link.h"
#include "transport/tcp_socket.h"

namespace sinew {

// The side channel of a ucx link is the TCP connection of the pair: it carries the address of each
// side's UCX worker, then nothing until a farewell. What ends it tells of the peer's end, which
// UCX's transports report late, or not at all.

inline constexpr std::size_t kUcxAddressMax = 64u << 10;  // bytes; real ones have hundreds

// Sends `mine` to every rank of `peers` and returns what each of them sent, by rank. kPeerLost,
// kDeadline and kProtocol name the peer.
Result<std::vector<std::vector<std::byte>>> exchange_addresses(const std::vector<Socket>& sockets,
                                                               RankSet peers,
                                                               std::span<const std::byte> mine,
                                                               Deadline deadline);

// Whether both ends have the same address, which no two machines of one network have.
bool on_same_machine(const Socket& socket);

// Says how many data messages were sent before this side closes: those are still delivered, and
// nothing more is waited for.
void say_farewell(const Socket& socket, std::uint64_t sent);

class FarewellReader {
 public:
  // Takes what has come, without waiting. False once the peer has closed or died.
  bool read(const Socket& socket);
  // What the peer had sent; nothing if it went without a word.
  std::optional<std::uint64_t> sent() const;

 private:
  std::array<std::byte, 16> bytes_{};
  std::size_t got_ = 0;
};

}  // namespace sinew
