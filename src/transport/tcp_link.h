#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "transport/stream_link.h"
#include "transport/tcp_socket.h"

namespace sinew {

// Connected sockets of one rank to all others, by rank. Every rank listens at its entry of `peers`
// (by rank) and connects to the ranks below its own, again and again until `deadline`. Connections
// that do not say the right hello (another job or epoch, garbage, silence) are dropped and harm
// nobody. kDeadline names a rank that is missing and what was last heard from it; kCancelled once
// `stop`, if given, is true.
Result<std::vector<Socket>> connect_tcp_sockets(const GroupIdentity& identity,
                                                TcpListener& listener,
                                                std::span<const Endpoint> peers, Deadline deadline,
                                                const std::atomic<bool>* stop = nullptr);

// The same where only rank 0 listens and is connected to all others: its sockets by rank.
Result<std::vector<Socket>> await_tcp_star(const GroupIdentity& identity, TcpListener& listener,
                                           Deadline deadline);
// The others' side: the socket to rank 0.
Result<Socket> join_tcp_star(const GroupIdentity& identity, const Endpoint& rank_zero,
                             Deadline deadline);

// Links over connected, prepared sockets, by rank, to the peers of `share`; the sockets of others
// are closed.
Links make_tcp_links(std::vector<Socket> sockets, const LinkShare& share);

// Both in one for a group that is joined by TCP alone.
Result<Links> connect_tcp_links(const GroupIdentity& identity, TcpListener& listener,
                                std::span<const Endpoint> peers, Deadline deadline);

}  // namespace sinew
