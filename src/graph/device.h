#pragma once

#include <ggml-cpp.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace sinew {

// The processor on which a rank computes, through ggml's backend registry alone, so that builds
// with backends as plugins work as well.
//
// Threads: one thread at a time.
class Device {
 public:
  // `name` is one of `names()`, or "" for the first accelerator, else the CPU. `threads` counts for
  // the CPU only. kUnsupported for an unknown name (the message lists the known ones).
  static Result<std::unique_ptr<Device>> open(const std::string& name, int threads);
  static std::vector<std::string> names();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::string name() const;
  bool is_cpu() const { return ggml_backend_dev_type(device_) == GGML_BACKEND_DEVICE_TYPE_CPU; }
  ggml_backend_t backend() const { return backend_.get(); }
  ggml_backend_buffer_type_t default_buffers() const;
  // Buffer types that keep weights in a faster layout for some operators, best first; may be empty.
  const std::vector<ggml_backend_buffer_type_t>& weight_buffers() const { return weight_buffers_; }
  bool supports(const ggml_tensor* operation) const;

 private:
  struct Threadpool;
  Device() = default;
  Status use_own_threads(int threads);

  ggml_backend_dev_t device_ = nullptr;
  ggml_backend_ptr backend_;
  std::vector<ggml_backend_buffer_type_t> weight_buffers_;
  std::unique_ptr<Threadpool> threadpool_;
};

}  // namespace sinew
