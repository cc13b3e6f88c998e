// The system's verbs stack: libibverbs on Linux, Apple's librdma on macOS. The library is loaded at
// run time, so that one program serves machines with and without it. Posting and polling go through
// the table of operations in the device's context, as the header's inline functions do, and make no
// system call.
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "transport/verbs_bringup.h"

namespace sinew {
namespace {

#ifdef __APPLE__
constexpr const char* kLibrary = "librdma.dylib";
constexpr bool kApple = true;
constexpr std::string_view kNoLibrary =
    "RDMA over Thunderbolt needs macOS 26.2 or later on a Mac with Thunderbolt 5";
constexpr std::string_view kNoDevice =
    "a Mac with Thunderbolt 5 lists its ports after 'rdma_ctl enable' in recoveryOS and a restart; "
    "on "
    "one with Thunderbolt 4 the list stays empty although 'rdma_ctl status' says enabled: use "
    "--link tcp there";
#else
constexpr const char* kLibrary = "libibverbs.so.1";
constexpr bool kApple = false;
constexpr std::string_view kNoLibrary = "install it (Debian: libibverbs1 and ibverbs-providers)";
constexpr std::string_view kNoDevice =
    "no RoCE or InfiniBand card with a loaded driver ('rdma link' lists them); Soft-RoCE can stand "
    "in: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE; else use --link tcp";
#endif

constexpr std::uint8_t kPort = 1;
constexpr int kGidsMax = 256;
// A lost packet is sent again after 4.096 us * 2^16 = 0.27 s, three times: a dead peer is an error
// after about a second. Seven times is for ever on some stacks.
constexpr std::uint8_t kAckTimeout = 16;
constexpr std::uint8_t kRetryCount = 3;
// Receives are posted before the peer may send; should one be missing, that ends in an error too.
constexpr std::uint8_t kReceiverNotReadyRetry = 6;
constexpr std::uint8_t kReceiverNotReadyTimer = 12;  // 0.64 ms

// The library's functions.
struct Library {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_port) query_port = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;  // may be missing
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr) reg_mr = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_query_qp) query_qp = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Library& verbs) {
  find(library, "_ibv_query_gid_ex", verbs.query_gid_ex);
  const bool channels = find(library, "ibv_create_comp_channel", verbs.create_comp_channel) &&
                        find(library, "ibv_destroy_comp_channel", verbs.destroy_comp_channel) &&
                        find(library, "ibv_get_cq_event", verbs.get_cq_event) &&
                        find(library, "ibv_ack_cq_events", verbs.ack_cq_events);
  return (channels || kApple) && find(library, "ibv_get_device_list", verbs.get_device_list) &&
         find(library, "ibv_free_device_list", verbs.free_device_list) &&
         find(library, "ibv_get_device_name", verbs.get_device_name) &&
         find(library, "ibv_open_device", verbs.open_device) &&
         find(library, "ibv_close_device", verbs.close_device) &&
         find(library, "ibv_query_port", verbs.query_port) &&
         find(library, "ibv_query_gid", verbs.query_gid) &&
         find(library, "ibv_alloc_pd", verbs.alloc_pd) &&
         find(library, "ibv_dealloc_pd", verbs.dealloc_pd) &&
         find(library, "ibv_reg_mr", verbs.reg_mr) &&
         find(library, "ibv_dereg_mr", verbs.dereg_mr) &&
         find(library, "ibv_create_cq", verbs.create_cq) &&
         find(library, "ibv_destroy_cq", verbs.destroy_cq) &&
         find(library, "ibv_create_qp", verbs.create_qp) &&
         find(library, "ibv_destroy_qp", verbs.destroy_qp) &&
         find(library, "ibv_modify_qp", verbs.modify_qp) &&
         find(library, "ibv_query_qp", verbs.query_qp);
}

// A failed call's errno, which some stacks leave at 0 or return negated.
int error_of(int result) {
  if (result != 0) return std::abs(result);
  return EIO;
}
tl::unexpected<int> last_error() {
  return tl::unexpected<int>(error_of(errno));
}
int status_of(int result) {
  if (result == 0) return 0;
  return error_of(result == -1 ? errno : result);
}

// Our opaque handles are the library's objects.
ibv_context* raw(VerbsDeviceHandle* handle) {
  return reinterpret_cast<ibv_context*>(handle);
}
ibv_pd* raw(VerbsDomainHandle* handle) {
  return reinterpret_cast<ibv_pd*>(handle);
}
ibv_mr* raw(VerbsRegionHandle* handle) {
  return reinterpret_cast<ibv_mr*>(handle);
}
ibv_comp_channel* raw(VerbsChannelHandle* handle) {
  return reinterpret_cast<ibv_comp_channel*>(handle);
}
ibv_cq* raw(VerbsCqHandle* handle) {
  return reinterpret_cast<ibv_cq*>(handle);
}
ibv_qp* raw(VerbsQpHandle* handle) {
  return reinterpret_cast<ibv_qp*>(handle);
}

// Length of the subnet of the interface that has the mapped address.
unsigned prefix_of(const VerbsGid& gid) {
  if (!gid.is_ipv4_mapped()) return 64;
  unsigned bits = 128;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return bits;
  for (const ifaddrs* it = interfaces; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || it->ifa_netmask == nullptr) continue;
    if (it->ifa_addr->sa_family != AF_INET) continue;
    const auto& address = reinterpret_cast<const sockaddr_in*>(it->ifa_addr)->sin_addr;
    if (std::memcmp(&address, gid.bytes.data() + 12, 4) != 0) continue;
    const auto mask = reinterpret_cast<const sockaddr_in*>(it->ifa_netmask)->sin_addr.s_addr;
    bits = 96 + static_cast<unsigned>(std::popcount(mask));
    break;
  }
  freeifaddrs(interfaces);
  return bits;
}

VerbsGidType type_of(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return VerbsGidType::kInfiniBand;
    case IBV_GID_TYPE_ROCE_V1:
      return VerbsGidType::kRoceV1;
    default:
      return VerbsGidType::kRoceV2;
  }
}

ibv_mtu mtu_of(std::uint32_t bytes) {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

class SystemVerbs final : public VerbsProvider {
 public:
  explicit SystemVerbs(const Library& library) : verbs_(library) {}

  VerbsQpType usual_type() const override { return kApple ? VerbsQpType::kUc : VerbsQpType::kRc; }
  std::string_view no_device_hint() const override { return kNoDevice; }

  VerbsAnswer<std::vector<std::string>> device_names() override {
    int count = 0;
    ibv_device** list = verbs_.get_device_list(&count);
    if (list == nullptr) {
      // A kernel without RDMA is a machine without devices.
      if (errno == ENOSYS || errno == ENOENT) return std::vector<std::string>();
      return last_error();
    }
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.emplace_back(verbs_.get_device_name(list[i]));
    verbs_.free_device_list(list);
    return names;
  }

  VerbsAnswer<VerbsDeviceHandle*> open_device(const std::string& name) override {
    int count = 0;
    ibv_device** list = verbs_.get_device_list(&count);
    if (list == nullptr) return last_error();
    ibv_context* context = nullptr;
    errno = ENODEV;
    for (int i = 0; i < count && context == nullptr; ++i) {
      if (name == verbs_.get_device_name(list[i])) context = verbs_.open_device(list[i]);
    }
    const int error = errno;
    verbs_.free_device_list(list);
    if (context == nullptr) return tl::unexpected<int>(error_of(error));
    return reinterpret_cast<VerbsDeviceHandle*>(context);
  }

  VerbsAnswer<VerbsPort> query_port(VerbsDeviceHandle* device) override {
    ibv_port_attr attributes{};
    if (const int error = read_port(device, attributes); error != 0) {
      return tl::unexpected<int>(error);
    }
    VerbsPort port;
    port.active = attributes.state == IBV_PORT_ACTIVE;
    port.lid = attributes.lid;
    port.mtu_bytes = 128u << std::clamp<unsigned>(attributes.active_mtu, 1, 5);
    port.layer = kApple                                               ? VerbsLayer::kThunderbolt
                 : attributes.link_layer == IBV_LINK_LAYER_INFINIBAND ? VerbsLayer::kInfiniBand
                                                                      : VerbsLayer::kEthernet;
    return port;
  }

  VerbsAnswer<std::vector<VerbsGidEntry>> query_gids(VerbsDeviceHandle* device) override {
    ibv_port_attr attributes{};
    if (const int error = read_port(device, attributes); error != 0) {
      return tl::unexpected<int>(error);
    }
    const bool infiniband = !kApple && attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
    std::vector<VerbsGidEntry> entries;
    for (int index = 0; index < std::min(attributes.gid_tbl_len, kGidsMax); ++index) {
      VerbsGidEntry entry;
      entry.index = static_cast<std::uint32_t>(index);
      entry.type = infiniband ? VerbsGidType::kInfiniBand : VerbsGidType::kRoceV2;
      ibv_gid_entry extended{};
      ibv_gid gid{};
      if (verbs_.query_gid_ex != nullptr &&
          verbs_.query_gid_ex(raw(device), kPort, entry.index, &extended, 0, sizeof(extended)) ==
              0) {
        gid = extended.gid;
        entry.type = type_of(extended.gid_type);
      } else if (verbs_.query_gid(raw(device), kPort, index, &gid) != 0) {
        continue;  // a gap of the table
      }
      std::copy(std::begin(gid.raw), std::end(gid.raw), entry.gid.bytes.begin());
      entry.prefix_bits = prefix_of(entry.gid);
      entries.push_back(entry);
    }
    return entries;
  }

  VerbsAnswer<VerbsDomainHandle*> allocate_domain(VerbsDeviceHandle* device) override {
    ibv_pd* domain = verbs_.alloc_pd(raw(device));
    if (domain == nullptr) return last_error();
    return reinterpret_cast<VerbsDomainHandle*>(domain);
  }

  VerbsAnswer<VerbsRegion> register_region(VerbsDomainHandle* domain,
                                           std::span<std::byte> memory) override {
    // On Apple's stack both sets of flags have been seen refused, on different systems.
    constexpr int kWide = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    ibv_mr* region =
        kApple ? (verbs_.reg_mr)(raw(domain), memory.data(), memory.size(), kWide) : nullptr;
    if (region == nullptr) {
      region = (verbs_.reg_mr)(raw(domain), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    }
    if (region == nullptr) return last_error();
    return VerbsRegion{reinterpret_cast<VerbsRegionHandle*>(region), region->lkey};
  }

  VerbsAnswer<VerbsChannelHandle*> create_channel(VerbsDeviceHandle* device) override {
    if (kApple) return static_cast<VerbsChannelHandle*>(nullptr);
    ibv_comp_channel* channel = verbs_.create_comp_channel(raw(device));
    if (channel == nullptr) return last_error();
    const int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
      const auto failure = last_error();
      verbs_.destroy_comp_channel(channel);
      return failure;
    }
    return reinterpret_cast<VerbsChannelHandle*>(channel);
  }

  VerbsAnswer<VerbsCqHandle*> create_cq(VerbsDeviceHandle* device, VerbsChannelHandle* channel,
                                        std::uint32_t frames) override {
    ibv_cq* cq = verbs_.create_cq(raw(device), static_cast<int>(frames), nullptr, raw(channel), 0);
    if (cq == nullptr) return last_error();
    return reinterpret_cast<VerbsCqHandle*>(cq);
  }

  VerbsAnswer<VerbsQpHandle*> create_qp(VerbsDomainHandle* domain, VerbsCqHandle* cq,
                                        VerbsQpType type, VerbsDepth depth) override {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = raw(cq);
    attributes.qp_type = type == VerbsQpType::kRc ? IBV_QPT_RC : IBV_QPT_UC;
    attributes.cap.max_send_wr = depth.send_frames;
    attributes.cap.max_recv_wr = depth.receive_frames;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    attributes.sq_sig_all = 1;
    ibv_qp* qp = verbs_.create_qp(raw(domain), &attributes);
    if (qp == nullptr) return last_error();
    return reinterpret_cast<VerbsQpHandle*>(qp);
  }

  std::uint32_t qp_number(VerbsQpHandle* qp) override { return raw(qp)->qp_num; }

  VerbsAnswer<VerbsDepth> query_depth(VerbsQpHandle* qp) override {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    if (const int error = status_of(verbs_.query_qp(raw(qp), &attributes, IBV_QP_CAP, &initial));
        error != 0) {
      return tl::unexpected<int>(error);
    }
    return VerbsDepth{initial.cap.max_send_wr, initial.cap.max_recv_wr};
  }

  int to_init(VerbsQpHandle* qp) override {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = kPort;
    return status_of(
        verbs_.modify_qp(raw(qp), &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  }

  int to_receive(VerbsQpHandle* qp, const VerbsRoute& route) override {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = mtu_of(route.mtu_bytes);
    attributes.dest_qp_num = route.peer_number;
    attributes.rq_psn = route.peer_psn;
    attributes.ah_attr.port_num = kPort;
    if (route.layer == VerbsLayer::kInfiniBand) {
      attributes.ah_attr.dlid = route.peer_lid;
    } else {
      attributes.ah_attr.is_global = 1;
      std::copy(route.peer_gid.bytes.begin(), route.peer_gid.bytes.end(),
                std::begin(attributes.ah_attr.grh.dgid.raw));
      attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(route.own_gid_index);
      // Thunderbolt cables are not routed.
      attributes.ah_attr.grh.hop_limit = kApple ? 1 : 64;
    }
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (raw(qp)->qp_type == IBV_QPT_RC) {
      attributes.max_dest_rd_atomic = 1;
      attributes.min_rnr_timer = kReceiverNotReadyTimer;
      mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    return status_of(verbs_.modify_qp(raw(qp), &attributes, mask));
  }

  int to_send(VerbsQpHandle* qp, const VerbsRoute& route) override {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = route.own_psn;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (raw(qp)->qp_type == IBV_QPT_RC) {
      attributes.timeout = kAckTimeout;
      attributes.retry_cnt = kRetryCount;
      attributes.rnr_retry = kReceiverNotReadyRetry;
      attributes.max_rd_atomic = 1;
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    return status_of(verbs_.modify_qp(raw(qp), &attributes, mask));
  }

  int post_receive(VerbsQpHandle* qp, std::uint64_t id, const VerbsBuffer& buffer) override {
    ibv_sge piece = piece_of(buffer);
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return status_of(raw(qp)->context->ops.post_recv(raw(qp), &request, &bad));
  }

  int post_send(VerbsQpHandle* qp, std::uint64_t id, const VerbsBuffer& buffer) override {
    ibv_sge piece = piece_of(buffer);
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return status_of(raw(qp)->context->ops.post_send(raw(qp), &request, &bad));
  }

  int poll_cq(VerbsCqHandle* cq, std::span<VerbsCompletion> into) override {
    std::array<ibv_wc, 16> done{};
    const int most = static_cast<int>(std::min(into.size(), done.size()));
    const int count = raw(cq)->context->ops.poll_cq(raw(cq), most, done.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = done[static_cast<std::size_t>(i)];
      into[static_cast<std::size_t>(i)] = {one.wr_id, static_cast<std::uint32_t>(one.status),
                                           one.byte_len};
    }
    return count;
  }

  int arm_cq(VerbsCqHandle* cq) override {
    return status_of(raw(cq)->context->ops.req_notify_cq(raw(cq), 0));
  }
  int channel_fd(VerbsChannelHandle* channel) override { return raw(channel)->fd; }
  void drain_channel(VerbsChannelHandle* channel) override {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    // Bounded by the events that can be there: one a queue and arming.
    for (int i = 0; i < kGidsMax && verbs_.get_cq_event(raw(channel), &cq, &context) == 0; ++i) {
      verbs_.ack_cq_events(cq, 1);
    }
  }

  // What cannot be given back stays with the process, which ends soon: nobody could mend it.
  void destroy_qp(VerbsQpHandle* qp) override { verbs_.destroy_qp(raw(qp)); }
  void deregister_region(VerbsRegionHandle* region) override { verbs_.dereg_mr(raw(region)); }
  void destroy_cq(VerbsCqHandle* cq) override { verbs_.destroy_cq(raw(cq)); }
  void free_domain(VerbsDomainHandle* domain) override { verbs_.dealloc_pd(raw(domain)); }
  void destroy_channel(VerbsChannelHandle* channel) override {
    verbs_.destroy_comp_channel(raw(channel));
  }
  void close_device(VerbsDeviceHandle* device) override { verbs_.close_device(raw(device)); }

 private:
  // 0 or an errno. The exported function writes the part of the structure that all releases share.
  int read_port(VerbsDeviceHandle* device, ibv_port_attr& attributes) {
    return status_of((verbs_.query_port)(
        raw(device), kPort, reinterpret_cast<struct _compat_ibv_port_attr*>(&attributes)));
  }
  static ibv_sge piece_of(const VerbsBuffer& buffer) {
    return {reinterpret_cast<std::uintptr_t>(buffer.address), buffer.bytes, buffer.region_key};
  }

  Library verbs_;
};

}  // namespace

Result<std::shared_ptr<VerbsProvider>> load_system_verbs() {
  // Never closed: drivers keep threads and exit handlers of their own.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorCode::kUnsupported, "verbs: {} cannot be loaded: {}", kLibrary, kNoLibrary);
  }
  Library verbs;
  if (!find_all(library, verbs)) {
    return fail(ErrorCode::kUnsupported, "verbs: {} lacks functions of libibverbs: {}", kLibrary,
                kNoLibrary);
  }
  return std::make_shared<SystemVerbs>(verbs);
}

}  // namespace sinew
