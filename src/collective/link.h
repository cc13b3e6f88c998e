#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace sinew {

using Deadline = std::chrono::steady_clock::time_point;

// A reliable, ordered stream of messages to and from one peer. transport/ implements it; collective/
// owns it, so that dependencies point inward.
//
// Threads: one thread drives all links of a group. No call blocks past its deadline; a waiting caller
// spins briefly, then sleeps in the kernel.
//
// Errors: kDeadline (the peer is late; `rank` names it), kPeerLost (the peer closed or died), kProtocol (a
// frame of another job, epoch or order), kIntegrity (checksum). After any error the link is dead: every later call
// returns the same error, and nothing is retried below the epoch.
class Link {
 public:
  virtual ~Link() = default;

  virtual Rank peer() const = 0;
  // "shm", "tcp": shown to people and written into errors.
  virtual std::string_view kind() const = 0;

  // Begins sending `bytes`; they must stay unchanged until `finish_send` succeeds.
  virtual Status start_send(std::span<const std::byte> bytes) = 0;
  virtual Status finish_send(Deadline deadline) = 0;
  // Receives exactly `into.size()` bytes: the peer's next message has that length or the call fails (kProtocol).
  virtual Status receive(std::span<std::byte> into, Deadline deadline) = 0;
};

}  // namespace sinew
