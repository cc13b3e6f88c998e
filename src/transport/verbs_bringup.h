#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/stream_link.h"
#include "transport/tcp_socket.h"
#include "transport/verbs_link.h"
#include "transport/verbs_ports.h"

namespace sinew {

// The system's stack, loaded at run time: kUnsupported, with the remedy, where there is none.
Result<std::shared_ptr<VerbsProvider>> load_system_verbs();

// What became of bringing verbs up: the connections to all peers of the share, or none and why.
struct VerbsBringUp {
  std::vector<VerbsConnection> connections;
  std::vector<Socket> sockets;  // those that no connection has taken, by rank
  std::optional<Error> refusal;
};

// Brings verbs up with every peer of `peers` over the connected `sockets` (by rank), at most three
// attempts a pair, then tells all ranks how it went: verbs serves all its pairs or none, and every
// rank comes to the same end and the same refusal. All ranks call it at the same time.
//
// `provider` may be an error, which then is the refusal. kPeerLost and kDeadline if a peer leaves
// meanwhile: then there is no group at all.
Result<VerbsBringUp> bring_up_verbs(const GroupIdentity& identity,
                                    const Result<std::shared_ptr<VerbsProvider>>& provider,
                                    const VerbsOptions& options, RankSet peers,
                                    std::vector<Socket> sockets, Deadline deadline);

// Links of a group that is joined by verbs alone. Where verbs is refused: TCP for all pairs, with a
// warning in the log, if the options of every rank allow it; else kUnsupported. Waits of the links
// end once `stop`, if given, is true.
Result<Links> connect_verbs_links(const GroupIdentity& identity,
                                  const Result<std::shared_ptr<VerbsProvider>>& provider,
                                  const VerbsOptions& options, TcpListener& listener,
                                  std::span<const Endpoint> peers, Deadline deadline,
                                  const std::atomic<bool>* stop = nullptr);

}  // namespace sinew
