#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "engine/control_message.h"
#include "host/process.h"

namespace sinew {

// Control messages over one end of a socket pair, each with its length (u32) in front. Never
// blocks: what the socket does not take waits in a queue, which is bounded because a rank that does
// not read is given up by its supervisor and a supervisor that does not read has asked for at most
// one request's answer.
//
// Threads: one thread at a time.
class ControlChannel {
 public:
  explicit ControlChannel(Descriptor socket);

  int descriptor() const { return socket_.get(); }
  bool has_unsent() const { return sent_ < outgoing_.size(); }

  // Queues the message and sends what the socket takes. kPeerLost if the other end is gone.
  Status send(const ControlMessage& message);
  Status send_queued();
  // Reads what has arrived. Complete messages are appended to `messages`, also when an error
  // follows them: kPeerLost when the other end is closed, kProtocol for a malformed message.
  Status receive(std::vector<ControlMessage>& messages);

 private:
  Descriptor socket_;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;
  std::vector<std::byte> incoming_;
};

}  // namespace sinew
