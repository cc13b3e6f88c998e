#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/limits.h"
#include "collective/frame.h"
#include "collective/group.h"
#include "collective/link.h"

namespace sinew {

// Frames over the links of one rank: what an operation sends and expects, and, when it fails, whose
// fault it is. Used by every operation of a group (collective/mesh_group.h).
//
// Threads: those of a Link.
class Messenger {
 public:
  struct Options {
    std::chrono::milliseconds timeout{30000};
    bool checksum_all = false;
    Deadline (*now)() = &std::chrono::steady_clock::now;
  };
  // `links` has an entry a rank, null for the own rank and for those without a link; a group of one
  // needs none.
  Messenger(const GroupIdentity& identity, Links links, const Options& options);

  Rank rank() const { return identity_.rank; }
  int size() const { return identity_.size; }
  RankSet linked() const;
  // Kinds of the links, joined by '+'; "-" without any.
  std::string kind() const;
  Link& link(Rank peer) { return *links_[static_cast<std::size_t>(peer)]; }
  Deadline now() const { return options_.now(); }

  void set_step(std::uint64_t step) { step_ = step; }
  void set_timeout(std::chrono::milliseconds timeout) { options_.timeout = timeout; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  // The next operation of the ranks `among` begins: sequence numbers and deadlines.
  void begin(RankSet among);
  RankSet among() const { return among_; }
  // A wait that only ends once other ranks' waits have ended lasts longer than theirs, so that the
  // true culprit's name arrives before this rank blames the messenger: wait `turn` of `turns`, each
  // of which depends on those before it. The last ends with the operation's timeout.
  Deadline deadline(int turn, int turns) const;
  // The operation has failed: asks the culprit's stream for its last words, tells the peers whom to
  // blame, and returns the error with all that is known about the culprit.
  Error conclude(Error error, Operation operation);

  // What the frame of an operation under way looks like from `source`, the peer that sends it.
  FrameHeader frame(Operation operation, Rank source, Rank subject, std::size_t length) const;
  // A frame of this rank, with the payload's checksum where one is due.
  FrameHeader sealed(Operation operation, Rank subject, std::span<const std::byte> payload) const;
  // Puts in source, the number that the operation has with the peer, and whether its link needs a
  // checksum. The payload stays unchanged until the link's finish_send.
  Status start_send(Rank peer, FrameHeader header, std::span<const std::byte> payload);
  // kProtocol unless the next frame of expected.source is the expected one. With `choices`, the
  // sender may choose any piece below it.
  Result<FrameHeader> receive_header(FrameHeader expected, Deadline deadline,
                                     std::uint32_t choices = 0);
  // Fills `into`, which has expected.length bytes, and proves its checksum.
  Status receive(const FrameHeader& expected, std::span<std::byte> into, Deadline deadline);
  // The same for a message that will be handed on, with its checksum.
  Result<FrameHeader> receive_to_pass_on(const FrameHeader& expected, std::span<std::byte> into,
                                         Deadline deadline);

 private:
  // The last frame of a peer that was a frame of this group.
  struct Heard {
    Operation operation = Operation::kAllReduce;
    std::uint64_t step = 0;
    std::uint64_t sequence = 0;
    Deadline when;
  };

  // Whether a payload needs a checksum on the link to `peer`; on any, if that is the own rank.
  bool needs_checksum(Rank peer, std::size_t length) const;
  // Always an error: the one that a fault frame tells of, or what is wrong with that frame.
  Status check_fault(const FrameHeader& header, Rank source) const;
  Error last_words(Error error);
  Error explain(Error error, Operation operation) const;
  std::string last_heard(Rank peer) const;
  void tell_peers(const Error& error);

  GroupIdentity identity_;
  Links links_;
  Options options_;
  std::uint64_t step_ = 0;
  std::uint64_t bytes_sent_ = 0;
  // The operation under way: who takes part, and its number among those shared with each peer, from
  // 1.
  RankSet among_;
  std::array<std::uint64_t, kRankCountMax> sequence_{};
  Deadline start_;
  std::array<std::optional<Heard>, kRankCountMax> heard_;
  std::array<FrameBytes, kRankCountMax> headers_{};  // of the sends under way, by peer
};

}  // namespace sinew
