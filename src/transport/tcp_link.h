#pragma once

#include <span>
#include <vector>

#include "collective/link.h"
#include "transport/tcp_socket.h"

namespace sinew {

// Links of one rank to all others over TCP. Every rank listens at its entry of `peers` (by rank)
// and connects to the ranks below its own, again and again until `deadline`. Connections that do
// not say the right hello (another job or epoch, garbage, silence) are dropped and harm nobody.
// kDeadline names a rank that is missing and what was last heard from it.
Result<Links> connect_tcp_links(const GroupIdentity& identity, TcpListener& listener,
                                std::span<const Endpoint> peers, Deadline deadline);

// Links over connected, prepared sockets whose peers are known; by rank, the own entry empty.
Links make_tcp_links(const GroupIdentity& identity, std::vector<Socket> sockets);

}  // namespace sinew
