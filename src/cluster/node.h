#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sinew {

// Steady time of one node since an origin of its own; never compared with another node's. The clock
// behind it must go on while the machine sleeps (CLOCK_BOOTTIME, mach_continuous_time): a lease
// that slept through its end must be over.
using Time = std::chrono::nanoseconds;

// Identity of a machine, drawn once and kept in its state folder. All zeros names nobody.
struct NodeId {
  std::array<std::uint8_t, 16> bytes{};
  friend auto operator<=>(const NodeId&, const NodeId&) = default;  // NOLINT(modernize-use-nullptr)
  bool none() const { return *this == NodeId{}; }
  // The first 8 hexadecimal digits: for people.
  std::string short_name() const;
};

// Best first: the order in which paths to a peer are preferred.
enum class PathKind : std::uint8_t { kLoopback, kThunderbolt, kEthernet, kWifi, kVpn, kUnknown };
inline constexpr int kPathKindCount = 6;
std::string path_kind_name(PathKind kind);

// Where an agent can be dialled.
struct Address {
  PathKind kind = PathKind::kUnknown;
  bool rdma = false;  // the interface has an RDMA device that was opened
  std::string host;   // numeric
  std::uint16_t port = 0;
  friend auto operator<=>(const Address&,
                          const Address&) = default;  // NOLINT(modernize-use-nullptr)
};

// SHA-256 of a model file: the same model on two nodes has the same id.
struct ModelId {
  std::array<std::uint8_t, 32> bytes{};
  friend auto operator<=>(const ModelId&,
                          const ModelId&) = default;  // NOLINT(modernize-use-nullptr)
  std::string short_name() const;
};

// What a node says of itself. The agent fills it in; everything here is bounded by the limits
// below, and a message that breaks them is refused.
struct Member {
  NodeId id;
  std::string name;               // the machine's name, for people
  std::uint64_t incarnation = 0;  // grows with each start of the agent; saved before it is used
  std::uint64_t nonce = 0;        // random for each start: tells two machines with one id apart
  std::uint32_t wire_version = 0;
  std::string version;
  std::vector<Address> addresses;
  std::uint64_t memory_bytes = 0;            // physical
  std::uint64_t memory_available_bytes = 0;  // what models may take, those that run included
  std::vector<ModelId> models;               // files on this node's disk
  friend bool operator==(const Member&, const Member&) = default;
};

enum class Liveness : std::uint8_t {
  kAlive,
  kSuspect,  // no sign of life for `suspect_after`: nothing new is placed on it
};

// A peer whose beats arrive directly, and over what.
struct PeerLink {
  NodeId peer;
  PathKind kind = PathKind::kUnknown;
  friend bool operator==(const PeerLink&, const PeerLink&) = default;
};

// A member as this node knows it. A node that is gone is in no list.
struct MemberView {
  Member member;
  Liveness liveness = Liveness::kAlive;
  Time last_sign{};             // when its beat last grew, direct or told by others
  bool heard = false;           // its beats reach this node directly
  std::vector<PeerLink> hears;  // whom it hears directly, by its own word
};

inline constexpr std::size_t kMembersMax = 64;
inline constexpr std::size_t kMemberNameMax = 64;
inline constexpr std::size_t kMemberHostMax = 64;
inline constexpr std::size_t kMemberAddressesMax = 16;
inline constexpr std::size_t kMemberModelsMax = 16;
inline constexpr std::size_t kVotersMax = 7;
inline constexpr std::size_t kLoadedModelsMax = 8;
inline constexpr std::size_t kClusterMessageBytesMax = 128u << 10;

// All waits of the cluster's core. Every node of a cluster must use the same `lease` and `drift`.
struct ClusterTiming {
  Time beat_every = std::chrono::milliseconds{400};
  Time suspect_after = std::chrono::milliseconds{1800};
  Time gone_after = std::chrono::seconds{6};
  // A voter promises its vote to the holder for `lease` by its own clock; the holder counts on
  // `lease` less two drifts. Clocks may run wrong by `drift` (a fraction) either way.
  Time lease = std::chrono::milliseconds{2000};
  double drift = 0.01;
  Time renew_every = std::chrono::milliseconds{400};
  Time campaign_backoff = std::chrono::milliseconds{600};  // between attempts, up to twice that
  // Alive for so long before a node may become a voter; up for so long before it decides.
  Time voter_stable = std::chrono::seconds{5};  // alive for so long before it becomes a voter
  Time voter_replace_after =
      std::chrono::minutes{5};                // a voter that is gone keeps its seat so long
  Time path_fresh = std::chrono::seconds{3};  // a probe counts for so long
  Time path_better_after =
      std::chrono::seconds{5};  // a better path is good so long before it is used
  // A node that hears no coordinator for so long ends its ranks: it may be in a minority.
  Time serve_alone = std::chrono::seconds{6};
  Time command_resend = std::chrono::seconds{1};
  Time command_deadline = std::chrono::seconds{10};  // a command without an answer has failed
};

}  // namespace sinew
