#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cluster/node_core.h"

namespace sinew {

// What agents say to each other inside their authenticated connections. Every message starts with
// this version; another one is refused with a message that names both.
inline constexpr std::uint16_t kClusterWireVersion = 1;

// How fresh a member is: (incarnation, beat) only grows while it lives, so news of a dead one can
// circle among the living without ever looking new.
struct MemberBeat {
  NodeId id;
  std::uint64_t incarnation = 0;
  std::uint64_t beat = 0;
};
struct MemberNews {
  Member member;
  std::uint64_t beat = 0;
  std::vector<PeerLink> hears;
};
struct BeatMessage {
  MemberNews self;
  std::vector<MemberBeat> beats;  // of everyone else the sender knows
  std::vector<MemberNews> news;   // a few of them in full, in turn
};
inline constexpr std::size_t kNewsMax = 4;

// The majority lease: see majority_lease.h.
struct LeaseMessage {
  enum class Kind : std::uint8_t { kAsk, kAskReply, kVote, kVoteReply, kRenew, kRenewReply };
  Kind kind = Kind::kAsk;
  bool granted = false;  // replies
  std::uint64_t term = 0;
  std::uint64_t sequence = 0;   // a reply repeats that of its question
  ValueTag value;               // what the sender has accepted
  std::uint64_t committed = 0;  // kRenew: versions of this term up to here are agreed
  // kRenewReply: the sender's clock. kRenew: the last such stamp that came from the receiver, which
  // so learns that the holder was there after that moment of its own clock; 0 before the first.
  Time stamp{};
  std::optional<ClusterState> state;  // kRenew: that of `value`, where the receiver may lack it
};

struct CommandMessage {
  std::uint64_t number = 0;
  NodeCore::Command command;
};
struct CommandReply {
  std::uint64_t number = 0;
  Status status;
};
struct LeaveMessage {
  std::uint64_t incarnation = 0;
};

using ClusterMessage =
    std::variant<BeatMessage, LeaseMessage, CommandMessage, CommandReply, LeaveMessage>;

std::vector<std::byte> encode_message(const ClusterMessage& message);
// kProtocol for anything that is malformed, of another version or outside the limits of node.h.
Result<ClusterMessage> decode_message(ByteSpan bytes);

// What a voter keeps in its store.
struct LeaseRecord {
  std::uint64_t term = 0;  // highest that was promised
  NodeId vote;             // to whom
  ValueTag value;
  ClusterState state;
};
std::vector<std::byte> encode_record(const LeaseRecord& record);
// kInvalidFile if it is not what encode_record wrote.
Result<LeaseRecord> decode_record(ByteSpan bytes);

}  // namespace sinew
