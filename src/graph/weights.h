#pragma once

#include <ggml-cpp.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/device.h"
#include "shard/load_list.h"

namespace sinew {

// The slices of one rank as ggml tensors in the device's memory, not yet filled: the engine writes
// each with `set`. Matrices go into a buffer type with a faster layout where the device has one for
// their type.
class Weights {
 public:
  static Result<Weights> allocate(const Device& device, const std::vector<LoadItem>& items);

  // Null if this rank holds nothing of it.
  ggml_tensor* find(std::string_view name) const;
  // Copies a whole tensor in: some layouts are made from the complete tensor only.
  // True if `read` gives the tensor's bytes as they were set: not so where it is laid out anew.
  bool reads_back(const ggml_tensor* tensor) const;
  void read(const ggml_tensor* tensor, std::uint64_t offset, std::span<std::byte> into) const;
  void set(ggml_tensor* tensor, std::span<const std::byte> bytes) const;
  std::uint64_t bytes() const;

 private:
  std::vector<ggml_context_ptr> contexts_;
  std::vector<ggml_backend_buffer_ptr> buffers_;  // freed before the contexts
  std::map<std::string, ggml_tensor*, std::less<>> tensors_;
  ggml_backend_buffer_type_t plain_ =
      nullptr;  // the device's buffers without a layout of their own
};

}  // namespace sinew
