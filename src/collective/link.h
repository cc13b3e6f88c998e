#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sinew {

using Deadline = std::chrono::steady_clock::time_point;

// Who a rank is in one epoch of one job. All ranks of a group agree on everything but `rank`.
struct GroupIdentity {
  JobId job;
  Epoch epoch = 0;
  Rank rank = 0;
  int size = 1;  // 1 .. kRankCountMax
};

// A reliable, ordered stream of bytes to and from one peer. transport/ implements it; collective/
// owns it, so that dependencies point inward. Where a message begins and ends is the frame's affair
// (collective/frame.h), so that a long message can be reduced piece by piece while it arrives.
//
// Threads: one thread drives all links of a group. No call blocks past its deadline, and each makes
// one attempt even if the deadline has passed; a waiting caller spins briefly, then sleeps in the
// kernel. While one link waits, the pending sends of all links of the same group move on: peers
// that send each other more than the transport buffers do not wait for each other in a circle.
//
// Errors: kDeadline (the peer is late), kPeerLost (the peer closed or died), kProtocol (the peer
// broke the transport's own rules); `rank` names the peer. Either direction that failed stays so:
// every later call for it returns the same error, and nothing is retried below the epoch. A loss
// that `start_send` notices is reported by `finish_send`, so that what the peer said before it left
// can still be read.
class Link {
 public:
  virtual ~Link() = default;

  virtual Rank peer() const = 0;
  // "shm", "tcp": shown to people and written into errors.
  virtual std::string_view kind() const = 0;
  // Whether bytes arrive as they were sent or not at all, as far as a machine can tell: they never
  // leave its memory, or the link has a checksum of its own. Then short messages go without one.
  virtual bool vouches() const { return false; }

  // Begins sending `head`, then `body`; both must stay unchanged until `finish_send` succeeds. One
  // send is under way at a time.
  virtual Status start_send(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
  // True from `start_send` until all bytes have left the caller's buffers.
  virtual bool sending() const = 0;
  virtual Status finish_send(Deadline deadline) = 0;
  // Fills `into` with the next bytes of the stream.
  virtual Status receive(std::span<std::byte> into, Deadline deadline) = 0;
};

// Indexed by rank; the own entry is null.
using Links = std::vector<std::unique_ptr<Link>>;

}  // namespace sinew
