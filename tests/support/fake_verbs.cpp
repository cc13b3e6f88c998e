#include "support/fake_verbs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "support/fake_fabric.h"

namespace sinew {

using testing::FakeFabric;

// What one machine's stack has made. They belong to one thread.
struct VerbsDeviceHandle {
  int cable = 0;
  int queue_pairs = 0;
  int regions = 0;
  int cqs = 0;
  int domains = 0;
};
struct VerbsDomainHandle {
  VerbsDeviceHandle* device = nullptr;
  std::vector<VerbsRegionHandle*> regions;
  int queue_pairs = 0;
};
struct VerbsRegionHandle {
  VerbsDomainHandle* domain = nullptr;
  std::span<std::byte> memory;
  std::uint32_t key = 0;
  std::uint64_t made = 0;  // when, counted in objects
};
struct VerbsCqHandle {
  VerbsDeviceHandle* device = nullptr;
  std::vector<VerbsQpHandle*> queue_pairs;
  std::deque<VerbsCompletion> completions;
};
struct VerbsQpHandle {
  struct Request {
    std::uint64_t id = 0;
    VerbsBuffer buffer;
  };
  VerbsDomainHandle* domain = nullptr;
  VerbsCqHandle* cq = nullptr;
  VerbsQpType type = VerbsQpType::kUc;
  VerbsDepth granted;
  std::uint32_t index = 0;  // of its queue in the fabric
  std::uint64_t made = 0;
  std::deque<Request> sends;
  std::deque<Request> receives;
  std::mt19937 dice;
  std::int64_t unanswered_since = 0;
};

namespace testing {
namespace {

using Shared = FakeFabric::Shared;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr int kAppleNotSupported = 102;
constexpr int kAppleTimedOut = 60;
constexpr int kQueuePairsMax = 10;
constexpr int kRegionsMax = 100;
constexpr std::uint32_t kGrantMin = 1023;
constexpr std::uint32_t kGrantMax = 4095;
constexpr std::int64_t kRetriesEnd = 100'000'000;  // ns until RC gives an answerless peer up
constexpr std::int64_t kPortGrace = 250'000'000;   // ns in which a port that went down is noticed
constexpr std::uint32_t kLengthError = 1;
constexpr std::uint32_t kRetriesExceeded = 12;

std::int64_t now_ns() {
  return std::chrono::duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

std::uint32_t frames_of(std::uint32_t bytes) {
  return static_cast<std::uint32_t>((bytes + kVerbsFrameBytes - 1) / kVerbsFrameBytes);
}

VerbsGid mapped_gid(int a, int b, int c, int d) {
  VerbsGid gid;
  gid.bytes[10] = gid.bytes[11] = 0xff;
  const std::array<int, 4> parts{a, b, c, d};
  for (std::size_t i = 0; i < 4; ++i) gid.bytes[12 + i] = static_cast<std::uint8_t>(parts[i]);
  return gid;
}

VerbsGid address_of(int machine, int cable) {
  return cable == 0 ? mapped_gid(127, 0, 0, 1) : mapped_gid(10, 77, cable, machine + 1);
}

class FakeVerbs final : public VerbsProvider {
 public:
  FakeVerbs(Shared& shared, int machine) : shared_(shared), machine_(machine) {}

  VerbsQpType usual_type() const override { return apple() ? VerbsQpType::kUc : VerbsQpType::kRc; }
  std::string_view no_device_hint() const override { return "a fake machine without devices"; }

  VerbsAnswer<std::vector<std::string>> device_names() override {
    if (const int error = injected(VerbsCall::kListDevices)) return tl::unexpected<int>(error);
    std::vector<std::string> names;
    if (shared_.no_devices) return names;
    for (int cable = 0; cable < shared_.cables; ++cable) names.push_back(name_of(cable));
    if (shared_.crossed && machine_ % 2 == 1) std::reverse(names.begin(), names.end());
    return names;
  }

  VerbsAnswer<VerbsDeviceHandle*> open_device(const std::string& name) override {
    if (const int error = injected(VerbsCall::kOpenDevice)) return tl::unexpected<int>(error);
    for (int cable = 0; cable < shared_.cables; ++cable) {
      if (name != name_of(cable)) continue;
      ++shared_.objects;
      auto* device = new VerbsDeviceHandle;
      device->cable = cable;
      return device;
    }
    return tl::unexpected<int>(ENODEV);
  }

  VerbsAnswer<VerbsPort> query_port(VerbsDeviceHandle* device) override {
    if (const int error = injected(VerbsCall::kQueryPort)) return tl::unexpected<int>(error);
    VerbsPort port;
    port.active = shared_.down_since[machine_][device->cable] == 0;
    port.layer = apple() ? VerbsLayer::kThunderbolt : VerbsLayer::kEthernet;
    port.mtu_bytes = 4096;
    return port;
  }

  VerbsAnswer<std::vector<VerbsGidEntry>> query_gids(VerbsDeviceHandle* device) override {
    if (const int error = injected(VerbsCall::kQueryGids)) return tl::unexpected<int>(error);
    VerbsGidEntry local;
    local.gid.bytes[0] = 0xfe;
    local.gid.bytes[1] = 0x80;
    local.gid.bytes[15] = static_cast<std::uint8_t>(machine_ + 1);
    local.prefix_bits = 64;
    VerbsGidEntry mapped;
    mapped.gid = address_of(machine_, device->cable);
    mapped.index = shared_.gid_index;
    mapped.prefix_bits = device->cable == 0 ? 104 : 120;
    return std::vector<VerbsGidEntry>{local, mapped};
  }

  VerbsAnswer<VerbsDomainHandle*> allocate_domain(VerbsDeviceHandle* device) override {
    if (const int error = injected(VerbsCall::kAllocateDomain)) return tl::unexpected<int>(error);
    ++shared_.objects;
    ++device->domains;
    auto* domain = new VerbsDomainHandle;
    domain->device = device;
    return domain;
  }

  VerbsAnswer<VerbsRegion> register_region(VerbsDomainHandle* domain,
                                           std::span<std::byte> memory) override {
    if (const int error = injected(VerbsCall::kRegisterRegion)) return tl::unexpected<int>(error);
    if (++domain->device->regions > kRegionsMax) return tl::unexpected<int>(ENOMEM);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    if (begin % (16u << 10) != 0) violation("a region that is not aligned to pages");
    if (memory.size() > (256u << 20)) violation("a region above 256 MB");
    if (begin >> 32 != (begin + memory.size() - 1) >> 32) violation("a region across 4 GiB");
    ++shared_.objects;
    auto* region = new VerbsRegionHandle{domain, memory, ++keys_, ++made_};
    domain->regions.push_back(region);
    return VerbsRegion{region, region->key};
  }

  VerbsAnswer<VerbsChannelHandle*> create_channel(VerbsDeviceHandle*) override {
    if (const int error = injected(VerbsCall::kCreateChannel)) return tl::unexpected<int>(error);
    return static_cast<VerbsChannelHandle*>(nullptr);
  }

  VerbsAnswer<VerbsCqHandle*> create_cq(VerbsDeviceHandle* device, VerbsChannelHandle*,
                                        std::uint32_t) override {
    if (const int error = injected(VerbsCall::kCreateCq)) return tl::unexpected<int>(error);
    ++shared_.objects;
    ++device->cqs;
    auto* cq = new VerbsCqHandle;
    cq->device = device;
    return cq;
  }

  VerbsAnswer<VerbsQpHandle*> create_qp(VerbsDomainHandle* domain, VerbsCqHandle* cq,
                                        VerbsQpType type, VerbsDepth depth) override {
    if (const int error = injected(VerbsCall::kCreateQp)) return tl::unexpected<int>(error);
    if (apple() && type != VerbsQpType::kUc) return tl::unexpected<int>(kAppleNotSupported);
    if (apple() && domain->device->queue_pairs == kQueuePairsMax) {
      return tl::unexpected<int>(EBUSY);
    }
    for (std::uint32_t index = 0; index < kFakeQueues; ++index) {
      std::uint32_t free = Shared::kFree;
      Shared::Queue& queue = shared_.queues[index];
      if (!queue.state.compare_exchange_strong(free, Shared::kMade)) continue;
      queue.machine = static_cast<std::uint32_t>(machine_);
      queue.cable = static_cast<std::uint32_t>(domain->device->cable);
      ++shared_.objects;
      ++domain->device->queue_pairs;
      ++domain->queue_pairs;
      auto* qp = new VerbsQpHandle;
      qp->domain = domain;
      qp->cq = cq;
      qp->type = type;
      qp->granted = {grant(depth.send_frames), grant(depth.receive_frames)};
      qp->index = index;
      qp->made = ++made_;
      qp->dice.seed(shared_.seed * 1000 + index);
      cq->queue_pairs.push_back(qp);
      queue_pairs_.push_back(qp);
      return qp;
    }
    return tl::unexpected<int>(ENOMEM);
  }

  std::uint32_t qp_number(VerbsQpHandle* qp) override { return kFakeFirstNumber + qp->index; }

  VerbsAnswer<VerbsDepth> query_depth(VerbsQpHandle* qp) override {
    if (const int error = injected(VerbsCall::kQueryDepth)) return tl::unexpected<int>(error);
    return qp->granted;
  }

  int to_init(VerbsQpHandle* qp) override {
    if (const int error = injected(VerbsCall::kToInit)) return error;
    return step(qp, Shared::kMade, Shared::kInit);
  }

  int to_receive(VerbsQpHandle* qp, const VerbsRoute& route) override {
    if (const int error = injected(VerbsCall::kToReceive)) return error;
    const int cable = qp->domain->device->cable;
    // What the stacks say of a GID that is not there, and of one that this cable does not reach.
    if (route.own_gid_index != shared_.gid_index && route.own_gid_index != 0) return EINVAL;
    bool reachable = route.own_gid_index == shared_.gid_index;
    bool known = false;
    for (int machine = 0; machine < shared_.machines; ++machine) {
      known = known || route.peer_gid == address_of(machine, cable);
    }
    reachable = reachable && known;
    if (!reachable) return apple() ? kAppleTimedOut : ETIMEDOUT;
    queue(qp).peer = route.peer_number;
    return step(qp, Shared::kInit, Shared::kReceives);
  }

  int to_send(VerbsQpHandle* qp, const VerbsRoute&) override {
    if (const int error = injected(VerbsCall::kToSend)) return error;
    return step(qp, Shared::kReceives, Shared::kSends);
  }

  int post_receive(VerbsQpHandle* qp, std::uint64_t id, const VerbsBuffer& buffer) override {
    if (const int error = injected(VerbsCall::kPostReceive)) return error;
    if (queue(qp).state < Shared::kSends) {
      if (apple()) violation("a receive before RTS");
      return EINVAL;
    }
    const int error = check_post(qp, qp->receives, qp->granted.receive_frames, buffer);
    if (error != 0) return error;
    qp->receives.push_back({id, buffer});
    queue(qp).posted.fetch_add(1);
    return 0;
  }

  int post_send(VerbsQpHandle* qp, std::uint64_t id, const VerbsBuffer& buffer) override {
    if (const int error = injected(VerbsCall::kPostSend)) return error;
    if (queue(qp).state < Shared::kSends) return EINVAL;
    const int error = check_post(qp, qp->sends, qp->granted.send_frames, buffer);
    if (error != 0) return error;
    qp->sends.push_back({id, buffer});
    move_sends(*qp);
    return 0;
  }

  int poll_cq(VerbsCqHandle* cq, std::span<VerbsCompletion> into) override {
    // Hardware needs nobody's poll to go on sending.
    for (VerbsQpHandle* qp : queue_pairs_) move_sends(*qp);
    for (VerbsQpHandle* qp : cq->queue_pairs) {
      if (queue(qp).state == Shared::kSends && !cut_off(*qp)) take_messages(*qp);
    }
    std::size_t count = 0;
    for (; count < into.size() && !cq->completions.empty(); ++count) {
      into[count] = cq->completions.front();
      cq->completions.pop_front();
    }
    return static_cast<int>(count);
  }

  int arm_cq(VerbsCqHandle*) override { return 0; }
  int channel_fd(VerbsChannelHandle*) override { return -1; }
  void drain_channel(VerbsChannelHandle*) override {}

  void destroy_qp(VerbsQpHandle* qp) override {
    Shared::Queue& own = queue(qp);
    // The next owner finds it as new. Who still sends here is told apart by its own peer number.
    own.state = Shared::kMade;
    own.posted = own.tail = own.head = 0;
    own.peer = own.injected = 0;
    own.state = Shared::kFree;
    std::erase(qp->cq->queue_pairs, qp);
    std::erase(queue_pairs_, qp);
    --qp->domain->queue_pairs;
    --qp->domain->device->queue_pairs;
    --shared_.objects;
    delete qp;
  }
  void deregister_region(VerbsRegionHandle* region) override {
    if (region->domain->queue_pairs > 0) violation("a region given back before its queue pairs");
    std::erase(region->domain->regions, region);
    --region->domain->device->regions;
    --shared_.objects;
    delete region;
  }
  void destroy_cq(VerbsCqHandle* cq) override {
    if (!cq->queue_pairs.empty()) violation("a completion queue destroyed before its queue pairs");
    if (cq->device->regions > 0) violation("a completion queue destroyed before the region");
    --cq->device->cqs;
    --shared_.objects;
    delete cq;
  }
  void free_domain(VerbsDomainHandle* domain) override {
    if (domain->queue_pairs > 0 || !domain->regions.empty() || domain->device->cqs > 0)
      violation("a domain freed before what was made in it");
    --domain->device->domains;
    --shared_.objects;
    delete domain;
  }
  void destroy_channel(VerbsChannelHandle*) override {}
  void close_device(VerbsDeviceHandle* device) override {
    if (device->domains > 0 || device->cqs > 0)
      violation("a device closed before what was made of it");
    --shared_.objects;
    delete device;
  }

 private:
  bool apple() const { return shared_.stack == FakeStack::kApple; }
  std::string name_of(int cable) const {
    return (apple() ? "rdma_en" : "rxe") + std::to_string(apple() ? cable + 2 : cable);
  }
  Shared::Queue& queue(const VerbsQpHandle* qp) const { return shared_.queues[qp->index]; }

  std::uint32_t grant(std::uint32_t asked) const {
    return apple() ? std::clamp(asked, kGrantMin, kGrantMax) : asked;
  }

  // 0, or the errno that the test wants this call to end with.
  int injected(VerbsCall call) {
    auto& failure = shared_.failures[machine_][static_cast<std::size_t>(call)];
    const std::uint32_t value = failure;
    if ((value & 0xffff) == 0) return 0;
    failure = value - 1;
    return static_cast<int>(value >> 16);
  }

  void violation(const char* what) {
    if (shared_.violations.fetch_add(1) != 0) return;
    std::snprintf(shared_.first_violation, sizeof(shared_.first_violation), "machine %d: %s",
                  machine_, what);
  }

  int step(VerbsQpHandle* qp, std::uint32_t from, std::uint32_t to) {
    if (queue(qp).state != from) return EINVAL;
    queue(qp).state = to;
    return 0;
  }

  int check_post(VerbsQpHandle* qp, const std::deque<VerbsQpHandle::Request>& posted,
                 std::uint32_t granted, const VerbsBuffer& buffer) {
    std::uint32_t frames = frames_of(buffer.bytes);
    for (const auto& request : posted) frames += frames_of(request.buffer.bytes);
    if (frames > granted) return ENOMEM;
    if (frames > granted / 4) violation("more than a quarter of the granted frames in use");
    if (buffer.bytes > kFakeMessageMax) return EINVAL;
    const std::int64_t down = shared_.down_since[machine_][qp->domain->device->cable];
    if (down != 0 && now_ns() - down > kPortGrace) violation("a post on a port that is down");
    const auto inside = [&](const VerbsRegionHandle* region) {
      return region->key == buffer.region_key && region->made < qp->made &&
             buffer.address >= region->memory.data() &&
             buffer.address + buffer.bytes <= region->memory.data() + region->memory.size();
    };
    const auto& regions = qp->domain->regions;
    if (std::none_of(regions.begin(), regions.end(), inside)) {
      violation("a buffer outside the regions that were registered before the queue pair");
      return EINVAL;
    }
    return 0;
  }

  bool cut_off(const VerbsQpHandle& qp) const {
    return shared_.silent[machine_] || shared_.down_since[machine_][qp.domain->device->cable] != 0;
  }

  void complete(VerbsQpHandle& qp, std::uint64_t id, std::uint32_t status, std::uint32_t bytes) {
    qp.cq->completions.push_back({id, status, bytes});
  }

  void finish_send(VerbsQpHandle& qp, std::uint32_t status) {
    complete(qp, qp.sends.front().id, status, qp.sends.front().buffer.bytes);
    qp.sends.pop_front();
    qp.unanswered_since = 0;
  }

  bool roll(VerbsQpHandle& qp, std::uint32_t millionths) {
    return millionths > 0 && qp.dice() % 1'000'000 < millionths;
  }

  // Nobody takes the message just now: RC says so after a while, Apple's UC waits for ever.
  bool unanswered(VerbsQpHandle& qp) {
    if (qp.type != VerbsQpType::kRc) return false;
    if (qp.unanswered_since == 0) qp.unanswered_since = now_ns();
    if (now_ns() - qp.unanswered_since < kRetriesEnd) return false;
    finish_send(qp, kRetriesExceeded);
    return true;
  }

  void move_sends(VerbsQpHandle& qp) {
    while (!qp.sends.empty()) {
      const std::uint32_t number = queue(&qp).peer - kFakeFirstNumber;
      if (cut_off(qp)) {
        if (!unanswered(qp)) return;
        continue;
      }
      Shared::Queue& peer = shared_.queues[number % kFakeQueues];
      const bool answers = peer.state >= Shared::kReceives && peer.peer == qp_number(&qp) &&
                           !shared_.silent[peer.machine % kFakeMachinesMax];
      if (!answers) {
        if (qp.type == VerbsQpType::kUc && !apple()) {
          finish_send(qp, 0);
          continue;
        }
        if (!unanswered(qp)) return;
        continue;
      }
      if (!deliver(qp, peer)) return;
    }
  }

  // False if the message has to wait.
  bool deliver(VerbsQpHandle& qp, Shared::Queue& peer) {
    const std::uint64_t tail = peer.tail;
    if (tail - peer.head == kFakeCells) return false;
    if (tail >= peer.posted) {
      ++shared_.met_no_receive;
      // Apple's hardware and RC hold it back; UC elsewhere loses it.
      if (qp.type != VerbsQpType::kUc || apple()) return false;
      finish_send(qp, 0);
      return true;
    }
    ++shared_.sent;
    if (roll(qp, shared_.loss)) {
      ++shared_.lost;
      finish_send(qp, 0);
      return true;
    }
    write_cell(qp, peer, tail);
    const bool room = tail + 1 - peer.head < kFakeCells && tail + 1 < peer.posted;
    if (room && roll(qp, shared_.duplicate)) {
      ++shared_.duplicated;
      write_cell(qp, peer, tail + 1);
    }
    finish_send(qp, 0);
    return true;
  }

  void write_cell(VerbsQpHandle& qp, Shared::Queue& peer, std::uint64_t at) {
    const VerbsBuffer& buffer = qp.sends.front().buffer;
    Shared::Cell& cell = peer.cells[at % kFakeCells];
    std::memcpy(cell.data, buffer.address, buffer.bytes);
    cell.bytes = buffer.bytes;
    cell.ready_at = 0;
    if (shared_.capture_from == machine_) {
      std::memcpy(shared_.captured, buffer.address, buffer.bytes);
      shared_.captured_bytes = buffer.bytes;
    }
    if (roll(qp, shared_.corrupt)) {
      ++shared_.corrupted;
      for (auto flips = 1 + qp.dice() % 3; flips > 0; --flips) {
        const std::size_t bit = qp.dice() % (std::size_t{buffer.bytes} * 8);
        cell.data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      }
    }
    if (roll(qp, shared_.late)) {
      ++shared_.delayed;
      cell.ready_at =
          now_ns() + static_cast<std::int64_t>(qp.dice() % (shared_.late_by_us + 1)) * 1000;
    }
    peer.tail.store(at + 1);
  }

  void take_messages(VerbsQpHandle& qp) {
    Shared::Queue& own = queue(&qp);
    if (own.injected != 0 && !qp.receives.empty()) {
      take(qp, own.injected_data, own.injected_bytes);
      own.posted.fetch_sub(1);
      own.injected = 0;
    }
    while (!qp.receives.empty() && own.head < own.tail) {
      const Shared::Cell& cell = own.cells[own.head % kFakeCells];
      if (cell.ready_at > now_ns()) return;
      take(qp, cell.data, cell.bytes);
      own.head.fetch_add(1);
    }
  }

  void take(VerbsQpHandle& qp, const std::byte* data, std::uint32_t bytes) {
    const VerbsQpHandle::Request receive = qp.receives.front();
    qp.receives.pop_front();
    const bool fits = apple() ? frames_of(bytes) == frames_of(receive.buffer.bytes)
                              : bytes <= receive.buffer.bytes;
    if (!fits) {
      violation("a SEND whose RECV has another number of frames");
      return complete(qp, receive.id, kLengthError, 0);
    }
    std::memcpy(receive.buffer.address, data, bytes);
    complete(qp, receive.id, 0, bytes);
  }

  Shared& shared_;  // the fabric outlives its providers
  int machine_;
  std::vector<VerbsQpHandle*> queue_pairs_;
  std::uint32_t keys_ = 100;
  std::uint64_t made_ = 0;
};

}  // namespace

std::shared_ptr<VerbsProvider> FakeFabric::provider(int machine) {
  return std::make_shared<FakeVerbs>(*shared_, machine);
}

}  // namespace testing
}  // namespace sinew
