#include "transport/verbs_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "transport/verbs_explain.h"

namespace sinew {
namespace {

// Queue depth asked for, over what is used.
constexpr std::uint32_t kDepthMargin = 4;
// Pages of Apple's systems; Linux pages divide it.
constexpr std::size_t kArenaBytesMin = 16u << 10;

// SINEW_ASSIGN for a verbs answer: explains the errno.
template <typename T>
Result<T> explained(VerbsAnswer<T> answer, VerbsCall call, const std::string& device) {
  if (answer) return *answer;
  return fail(explain_verbs(call, answer.error(), device));
}

}  // namespace

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::open(std::shared_ptr<VerbsProvider> provider,
                                                       const std::string& name,
                                                       std::size_t arena_bytes) {
  std::shared_ptr<VerbsDevice> device(new VerbsDevice(std::move(provider), name));
  SINEW_TRY(device->prepare(arena_bytes));
  return device;
}

Status VerbsDevice::prepare(std::size_t arena_bytes) {
  SINEW_ASSIGN(handle_, explained(provider_->open_device(name_), VerbsCall::kOpenDevice, name_));
  SINEW_ASSIGN(domain_,
               explained(provider_->allocate_domain(handle_), VerbsCall::kAllocateDomain, name_));
  SINEW_TRY(map_arena(arena_bytes));
  SINEW_ASSIGN(region_, explained(provider_->register_region(domain_, arena_),
                                  VerbsCall::kRegisterRegion, name_));
  SINEW_ASSIGN(channel_,
               explained(provider_->create_channel(handle_), VerbsCall::kCreateChannel, name_));
  return {};
}

// A power of two, aligned to its own size: no border of 4 GiB lies inside.
Status VerbsDevice::map_arena(std::size_t arena_bytes) {
  if (arena_bytes > kArenaBytesMax) {
    return fail(ErrorCode::kUsage, "verbs: {} bytes of slots on {}, at most {}: use smaller slots",
                arena_bytes, name_, kArenaBytesMax);
  }
  const std::size_t size = std::bit_ceil(std::max(arena_bytes, kArenaBytesMin));
  void* mapped =
      mmap(nullptr, size * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kNoMemory, "verbs: no memory for {} bytes of slots: {}", size,
                std::strerror(errno));
  }
  auto* begin = static_cast<std::byte*>(mapped);
  const std::size_t front = (size - reinterpret_cast<std::uintptr_t>(begin) % size) % size;
  if (front > 0) munmap(begin, front);
  if (front < size) munmap(begin + front + size, size - front);
  arena_ = {begin + front, size};
  return {};
}

VerbsDevice::~VerbsDevice() {
  if (region_.handle != nullptr) provider_->deregister_region(region_.handle);
  for (VerbsCqHandle* cq : retired_) provider_->destroy_cq(cq);
  if (domain_ != nullptr) provider_->free_domain(domain_);
  if (channel_ != nullptr) provider_->destroy_channel(channel_);
  if (handle_ != nullptr) provider_->close_device(handle_);
  if (!arena_.empty()) munmap(arena_.data(), arena_.size());
}

Result<VerbsPort> VerbsDevice::port() const {
  return explained(provider_->query_port(handle_), VerbsCall::kQueryPort, name_);
}

Status VerbsDevice::check_port() const {
  SINEW_ASSIGN(const VerbsPort state, port());
  if (state.active) return {};
  return fail(ErrorCode::kPeerLost, "port {} is down: check the cable", name_);
}

Result<std::span<std::byte>> VerbsDevice::take_memory(std::size_t bytes) {
  SINEW_ASSERT(bytes % kVerbsFrameBytes == 0);
  if (bytes > arena_.size() - taken_) {
    return fail(ErrorCode::kInternal, "verbs: {} of {} bytes of slots on {} are taken, {} wanted",
                taken_, arena_.size(), name_, bytes);
  }
  const std::span<std::byte> memory = arena_.subspan(taken_, bytes);
  taken_ += bytes;
  return memory;
}

Result<std::unique_ptr<VerbsQueue>> VerbsQueue::create(std::shared_ptr<VerbsDevice> device,
                                                       VerbsQpType type, VerbsDepth wanted) {
  VerbsProvider& provider = device->provider();
  const std::string& name = device->name();
  std::unique_ptr<VerbsQueue> queue(new VerbsQueue(device));
  const VerbsDepth asked{wanted.send_frames * kDepthMargin, wanted.receive_frames * kDepthMargin};
  SINEW_ASSIGN(queue->cq_, explained(provider.create_cq(device->handle(), device->channel(),
                                                        asked.send_frames + asked.receive_frames),
                                     VerbsCall::kCreateCq, name));
  SINEW_ASSIGN(queue->qp_, explained(provider.create_qp(device->domain(), queue->cq_, type, asked),
                                     VerbsCall::kCreateQp, name));
  SINEW_ASSIGN(const VerbsDepth granted,
               explained(provider.query_depth(queue->qp_), VerbsCall::kQueryDepth, name));
  queue->budget_ = {granted.send_frames / kDepthMargin, granted.receive_frames / kDepthMargin};
  if (const int error = provider.to_init(queue->qp_); error != 0) {
    return fail(explain_verbs(VerbsCall::kToInit, error, name));
  }
  return queue;
}

VerbsQueue::~VerbsQueue() {
  if (qp_ != nullptr) device_->provider().destroy_qp(qp_);
  if (cq_ != nullptr) device_->retire(cq_);
}

std::uint32_t VerbsQueue::number() const {
  return device_->provider().qp_number(qp_);
}

Status VerbsQueue::connect(const VerbsRoute& route) {
  VerbsProvider& provider = device_->provider();
  if (const int error = provider.to_receive(qp_, route); error != 0) {
    return fail(explain_verbs(VerbsCall::kToReceive, error, device_->name()));
  }
  if (const int error = provider.to_send(qp_, route); error != 0) {
    return fail(explain_verbs(VerbsCall::kToSend, error, device_->name()));
  }
  return {};
}

}  // namespace sinew
