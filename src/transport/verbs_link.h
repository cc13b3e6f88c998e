#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/stream_link.h"
#include "transport/tcp_socket.h"
#include "transport/verbs_rail.h"

namespace sinew {

// What joins this rank to one peer once verbs_bringup.h has brought it up.
struct VerbsConnection {
  Rank peer = 0;
  // At least one, in the order that both sides agreed on.
  std::vector<std::unique_ptr<VerbsRail>> rails;
  // The side channel: the connection on which they agreed. It closes with the peer's process,
  // which a queue pair does not tell.
  Socket side;
};

// Links over verbs. The stream is cut into slots that go over a pair's rails in turn; each rail
// keeps its order, so the order of the stream is that of the rails.
//
// A closed link and a peer that died are noticed by the side channel within a millisecond of a
// wait, a stopped peer by the deadline, a pulled cable within `kVerbsPortInterval`. A failed link
// posts nothing any more: posting on a pulled cable is known to crash the process.
Links make_verbs_links(int ranks, std::vector<VerbsConnection> connections,
                       const std::shared_ptr<LinkHub>& hub);

inline constexpr std::chrono::milliseconds kVerbsPortInterval{100};

}  // namespace sinew
