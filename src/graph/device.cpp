#include "graph/device.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include "base/assert.h"

namespace sinew {
namespace {

// Spin while waiting for the next operator: between segments there is a collective of microseconds,
// and waking a thread takes longer than that. ggml's pool falls asleep by itself after some time
// without work.
constexpr std::uint32_t kPollLevel = 100;

void load_backends_once() {
  static const bool loaded = [] {
    ggml_backend_load_all();
    return true;
  }();
  SINEW_ASSERT(loaded);
}

template <typename Function>
Function registry_function(ggml_backend_reg_t registry, const char* name) {
  return reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(registry, name));
}

}  // namespace

// ggml's thread pool, owned here because its functions live in the backend, which may be a plugin.
struct Device::Threadpool {
  ggml_threadpool_t pool = nullptr;
  void (*release)(ggml_threadpool_t) = nullptr;
  ~Threadpool() {
    if (pool != nullptr) release(pool);
  }
};

std::vector<std::string> Device::names() {
  load_backends_once();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i)
    names.emplace_back(ggml_backend_dev_name(ggml_backend_dev_get(i)));
  return names;
}

Result<std::unique_ptr<Device>> Device::open(const std::string& name, int threads) {
  load_backends_once();
  std::unique_ptr<Device> device(new Device);
  if (name.empty()) {
    device->device_ = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (device->device_ == nullptr)
      device->device_ = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU);
    if (device->device_ == nullptr)
      device->device_ = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  } else {
    device->device_ = ggml_backend_dev_by_name(name.c_str());
  }
  if (device->device_ == nullptr)
    return fail(ErrorCode::kUnsupported, "device '{}' is not known to ggml here; there are: {}",
                name, fmt::join(names(), ", "));
  device->backend_.reset(ggml_backend_dev_init(device->device_, nullptr));
  if (device->backend_ == nullptr)
    return fail(ErrorCode::kUnsupported, "device '{}' could not be started by ggml",
                ggml_backend_dev_name(device->device_));
  if (device->is_cpu()) SINEW_TRY(device->use_own_threads(threads));
  return device;
}

Device::~Device() = default;

Status Device::use_own_threads(int threads) {
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device_);
  const auto set_threads =
      registry_function<ggml_backend_set_n_threads_t>(registry, "ggml_backend_set_n_threads");
  const auto create =
      registry_function<decltype(&ggml_threadpool_new)>(registry, "ggml_threadpool_new");
  const auto release =
      registry_function<decltype(&ggml_threadpool_free)>(registry, "ggml_threadpool_free");
  const auto use = registry_function<decltype(&ggml_backend_cpu_set_threadpool)>(
      registry, "ggml_backend_cpu_set_threadpool");
  const auto extra_buffers = registry_function<ggml_backend_dev_get_extra_bufts_t>(
      registry, "ggml_backend_dev_get_extra_bufts");
  if (set_threads == nullptr || create == nullptr || release == nullptr || use == nullptr)
    return fail(ErrorCode::kUnsupported,
                "this ggml's CPU backend offers no thread pool; build ggml 0.25.1 (./setup does)");
  set_threads(backend_.get(), threads);
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  params.poll = kPollLevel;
  threadpool_ = std::make_unique<Threadpool>();
  threadpool_->release = release;
  threadpool_->pool = create(&params);
  if (threadpool_->pool == nullptr)
    return fail(ErrorCode::kNoMemory, "{} threads could not be started", threads);
  use(backend_.get(), threadpool_->pool);
  if (extra_buffers == nullptr) return {};
  for (ggml_backend_buffer_type_t* type = extra_buffers(device_);
       type != nullptr && *type != nullptr; ++type)
    weight_buffers_.push_back(*type);
  return {};
}

std::string Device::name() const {
  return ggml_backend_dev_name(device_);
}
ggml_backend_buffer_type_t Device::default_buffers() const {
  return ggml_backend_dev_buffer_type(device_);
}
bool Device::supports(const ggml_tensor* operation) const {
  return ggml_backend_dev_supports_op(device_, operation);
}

}  // namespace sinew
