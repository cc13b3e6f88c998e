#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace sinew {

// The narrow part of the verbs interface that the verbs link needs, in types of our own, so that
// one code base runs over libibverbs, Apple's librdma and the provider of the tests, which enforces
// what Apple's stack demands. Facts about both stacks, with sources:
// docs/decisions/14-verbs-link.md.

// Receive slots and queue depths are counted in frames: Apple's stack counts them so (technote
// TN3205), and demands that a SEND and its RECV have the same number of them.
inline constexpr std::size_t kVerbsFrameBytes = 4096;

enum class VerbsQpType : std::uint8_t {
  kRc = 1,  // reliable connection: the hardware repeats what is lost and reports a dead peer
  kUc = 2,  // unreliable connection, the only kind of Apple's stack: nothing is reported
};
enum class VerbsLayer : std::uint8_t { kInfiniBand = 1, kEthernet = 2, kThunderbolt = 3 };
enum class VerbsGidType : std::uint8_t { kInfiniBand = 1, kRoceV1 = 2, kRoceV2 = 3 };

std::string_view verbs_qp_type_name(VerbsQpType type);
std::string_view verbs_layer_name(VerbsLayer layer);

// An address of a port: 16 bytes, in network order.
struct VerbsGid {
  std::array<std::uint8_t, 16> bytes{};

  friend bool operator==(const VerbsGid&, const VerbsGid&) = default;
  // ::ffff:a.b.c.d, the address of the IP interface that belongs to the port.
  bool is_ipv4_mapped() const;
  // Whether the first `bits` bits are those of `other`.
  bool shares_prefix(const VerbsGid& other, unsigned bits) const;
};
std::string to_string(const VerbsGid& gid);

struct VerbsGidEntry {
  VerbsGid gid;
  std::uint32_t index = 0;
  VerbsGidType type = VerbsGidType::kRoceV2;
  unsigned prefix_bits = 128;  // of the subnet, counted from the front of the GID
};

struct VerbsPort {
  bool active = false;
  VerbsLayer layer = VerbsLayer::kEthernet;
  std::uint16_t lid = 0;        // InfiniBand only
  std::uint32_t mtu_bytes = 0;  // the active one: 256 .. 4096
};

// A value, or the system's errno, never 0.
template <typename T>
using VerbsAnswer = tl::expected<T, int>;

// What the provider made; each is given back by the call of the same name, in the order queue pair,
// region, completion queue, domain, channel, device.
struct VerbsDeviceHandle;
struct VerbsDomainHandle;
struct VerbsRegionHandle;
struct VerbsChannelHandle;
struct VerbsCqHandle;
struct VerbsQpHandle;

struct VerbsRegion {
  VerbsRegionHandle* handle = nullptr;
  std::uint32_t key = 0;
};

struct VerbsDepth {
  std::uint32_t send_frames = 0;
  std::uint32_t receive_frames = 0;
};

// What a queue pair needs to know to reach its peer.
struct VerbsRoute {
  std::uint32_t peer_number = 0;  // of the peer's queue pair
  std::uint32_t peer_psn = 0;     // 24 bits
  std::uint32_t own_psn = 0;
  VerbsLayer layer = VerbsLayer::kEthernet;
  std::uint16_t peer_lid = 0;
  VerbsGid peer_gid;
  std::uint32_t own_gid_index = 0;
  std::uint32_t mtu_bytes = 1024;  // the smaller one of both sides
};

// One buffer of a registered region: whole frames.
struct VerbsBuffer {
  std::byte* address = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t region_key = 0;
};

struct VerbsCompletion {
  std::uint64_t id = 0;      // as posted
  std::uint32_t status = 0;  // 0: done; else the verbs work completion status
  std::uint32_t bytes = 0;   // of a receive
};

// A verbs stack. Each call that can fail gives an errno; explain_verbs (verbs_explain.h) says what
// it means and what to do.
//
// Threads: one thread at a time for one device and all that was made from it.
class VerbsProvider {
 public:
  virtual ~VerbsProvider() = default;

  // What kind of queue pair to use where the user has not said.
  virtual VerbsQpType usual_type() const = 0;

  virtual VerbsAnswer<std::vector<std::string>> device_names() = 0;
  // What an empty list means on this system and what to do.
  virtual std::string_view no_device_hint() const = 0;
  virtual VerbsAnswer<VerbsDeviceHandle*> open_device(const std::string& name) = 0;
  virtual VerbsAnswer<VerbsPort> query_port(VerbsDeviceHandle* device) = 0;
  virtual VerbsAnswer<std::vector<VerbsGidEntry>> query_gids(VerbsDeviceHandle* device) = 0;
  virtual VerbsAnswer<VerbsDomainHandle*> allocate_domain(VerbsDeviceHandle* device) = 0;
  // Memory must be page-aligned, from mmap, and stay where it is until the region is given back.
  virtual VerbsAnswer<VerbsRegion> register_region(VerbsDomainHandle* domain,
                                                   std::span<std::byte> memory) = 0;
  // Null where the stack has none: the caller looks at its completion queues from time to time.
  virtual VerbsAnswer<VerbsChannelHandle*> create_channel(VerbsDeviceHandle* device) = 0;
  virtual VerbsAnswer<VerbsCqHandle*> create_cq(VerbsDeviceHandle* device,
                                                VerbsChannelHandle* channel,
                                                std::uint32_t frames) = 0;
  // Both directions complete in `cq`; every work request is signalled.
  virtual VerbsAnswer<VerbsQpHandle*> create_qp(VerbsDomainHandle* domain, VerbsCqHandle* cq,
                                                VerbsQpType type, VerbsDepth depth) = 0;
  virtual std::uint32_t qp_number(VerbsQpHandle* qp) = 0;
  // What was granted, which may be more or less than what was asked for.
  virtual VerbsAnswer<VerbsDepth> query_depth(VerbsQpHandle* qp) = 0;

  // The three steps of a queue pair's life; 0 or an errno.
  virtual int to_init(VerbsQpHandle* qp) = 0;
  virtual int to_receive(VerbsQpHandle* qp, const VerbsRoute& route) = 0;
  virtual int to_send(VerbsQpHandle* qp, const VerbsRoute& route) = 0;

  virtual int post_receive(VerbsQpHandle* qp, std::uint64_t id, const VerbsBuffer& buffer) = 0;
  virtual int post_send(VerbsQpHandle* qp, std::uint64_t id, const VerbsBuffer& buffer) = 0;
  // Fills the front of `into`; how many, or -1 if the queue is broken. Makes no system call.
  virtual int poll_cq(VerbsCqHandle* cq, std::span<VerbsCompletion> into) = 0;

  // The next completion of `cq` makes `channel_fd` readable; 0 or an errno.
  virtual int arm_cq(VerbsCqHandle* cq) = 0;
  virtual int channel_fd(VerbsChannelHandle* channel) = 0;
  // Takes all events off the channel without waiting.
  virtual void drain_channel(VerbsChannelHandle* channel) = 0;

  virtual void destroy_qp(VerbsQpHandle* qp) = 0;
  virtual void deregister_region(VerbsRegionHandle* region) = 0;
  virtual void destroy_cq(VerbsCqHandle* cq) = 0;
  virtual void free_domain(VerbsDomainHandle* domain) = 0;
  virtual void destroy_channel(VerbsChannelHandle* channel) = 0;
  virtual void close_device(VerbsDeviceHandle* device) = 0;
};

}  // namespace sinew
