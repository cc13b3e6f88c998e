#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "graph/device.h"
#include "plan/plan.h"

namespace sinew {

// Keys and values of one rank's heads for `slots` sequences of up to `context` tokens each, in f16.
// Cell `slot * context + position` belongs to one token; a row holds the heads of that token side
// by side. With latent attention a row is [latent | rotary key], values are its first part, and
// every rank that holds heads holds all of it.
class KvCache {
 public:
  static Result<KvCache> allocate(const Device& device, const ModelSpec& spec, int kv_heads,
                                  std::int64_t context, int slots);

  std::int64_t context() const { return context_; }
  std::uint64_t bytes() const {
    return buffer_ == nullptr ? 0 : ggml_backend_buffer_get_size(buffer_.get());
  }
  // [elements of a token, context x slots]; null if this rank holds no heads.
  ggml_tensor* keys(int layer) const { return at(keys_, layer); }
  ggml_tensor* values(int layer) const { return at(values_, layer); }  // null with latent attention

 private:
  static ggml_tensor* at(const std::vector<ggml_tensor*>& list, int layer) {
    return list.empty() ? nullptr : list[static_cast<std::size_t>(layer)];
  }
  ggml_context_ptr tensors_;
  ggml_backend_buffer_ptr buffer_;
  std::vector<ggml_tensor*> keys_;
  std::vector<ggml_tensor*> values_;
  std::int64_t context_ = 0;
};

}  // namespace sinew
