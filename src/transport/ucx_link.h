#pragma once

#include <vector>

#include "transport/stream_link.h"
#include "transport/tcp_socket.h"

namespace sinew {

struct UcxOptions {
  // Says which of UCX's transports was chosen for each peer, and lets UCX log.
  bool verbose = false;
};

// Links over UCX to the peers of `share`, whose connected sockets (tcp_link.h) carry the workers'
// addresses and stay open as the sign of life of each peer; the sockets of others are closed. UCX
// chooses among its transports and devices by its own environment (UCX_TLS, UCX_NET_DEVICES).
// Every link is proven in both directions before this returns. kUnsupported where the build or the
// machine lacks UCX; kDeadline, kPeerLost and kProtocol name the peer.
//
// A closed link and a peer that died are noticed by the socket at once, a stopped peer by the
// deadline.
//
// Threads: UCX is entered by the thread that drives the links; it keeps one of its own for
// connections.
Result<Links> make_ucx_links(const GroupIdentity& identity, std::vector<Socket> sockets,
                             const LinkShare& share, const UcxOptions& options, Deadline deadline);

}  // namespace sinew
