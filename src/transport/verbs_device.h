#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/verbs_api.h"

namespace sinew {

// An open device with one protection domain and one registered arena, from which every queue pair
// of this rank on the device takes its slots: stacks are known that allow few regions, corrupt
// regions that cross a 4 GiB border, and do not deliver into memory registered later.
class VerbsDevice {
 public:
  // Registers at least `arena_bytes`, kArenaBytesMax at most.
  static Result<std::shared_ptr<VerbsDevice>> open(std::shared_ptr<VerbsProvider> provider,
                                                   const std::string& name,
                                                   std::size_t arena_bytes);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  static constexpr std::size_t kArenaBytesMax = 256u << 20;

  VerbsProvider& provider() const { return *provider_; }
  const std::string& name() const { return name_; }
  VerbsDomainHandle* domain() const { return domain_; }
  VerbsDeviceHandle* handle() const { return handle_; }
  // Null if the stack has none.
  VerbsChannelHandle* channel() const { return channel_; }
  std::uint32_t region_key() const { return region_.key; }

  Result<VerbsPort> port() const;
  // kPeerLost, naming the device, unless the port is up.
  Status check_port() const;
  // A part of the arena that nobody has taken yet; whole frames.
  Result<std::span<std::byte>> take_memory(std::size_t bytes);
  // Destroys `cq` in its turn when the device is closed: after the region.
  void retire(VerbsCqHandle* cq) { retired_.push_back(cq); }

 private:
  VerbsDevice(std::shared_ptr<VerbsProvider> provider, std::string name)
      : provider_(std::move(provider)), name_(std::move(name)) {}
  Status prepare(std::size_t arena_bytes);
  Status map_arena(std::size_t arena_bytes);

  // Shared by the devices of a rank and by whoever made the provider.
  std::shared_ptr<VerbsProvider> provider_;
  std::string name_;
  VerbsDeviceHandle* handle_ = nullptr;
  VerbsDomainHandle* domain_ = nullptr;
  VerbsChannelHandle* channel_ = nullptr;
  VerbsRegion region_;
  std::span<std::byte> arena_;
  std::size_t taken_ = 0;
  std::vector<VerbsCqHandle*> retired_;
};

// A queue pair with its completion queue.
class VerbsQueue {
 public:
  // In state INIT. `wanted` counts what the caller will have outstanding; four times as much is
  // asked for, because stacks are known that grant depth which they do not serve.
  static Result<std::unique_ptr<VerbsQueue>> create(std::shared_ptr<VerbsDevice> device,
                                                    VerbsQpType type, VerbsDepth wanted);
  ~VerbsQueue();
  VerbsQueue(const VerbsQueue&) = delete;
  VerbsQueue& operator=(const VerbsQueue&) = delete;

  VerbsQpHandle* qp() const { return qp_; }
  VerbsCqHandle* cq() const { return cq_; }
  std::uint32_t number() const;
  // Frames that may be outstanding each way: a quarter of what was granted.
  VerbsDepth budget() const { return budget_; }
  // To RTR and RTS.
  Status connect(const VerbsRoute& route);

 private:
  explicit VerbsQueue(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}

  // Shared: the device goes when its last queue has gone.
  std::shared_ptr<VerbsDevice> device_;
  VerbsCqHandle* cq_ = nullptr;
  VerbsQpHandle* qp_ = nullptr;
  VerbsDepth budget_;
};

}  // namespace sinew
