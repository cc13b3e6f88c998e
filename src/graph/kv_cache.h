#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "graph/device.h"
#include "plan/plan.h"

namespace sinew {

// What a rank's cache is made for.
struct CacheShape {
  IndexRange layers;  // of the rank's stage
  int kv_heads = 0;
  std::int64_t context = 0;  // tokens of a slot
  int slots = 1;
  TensorType type = TensorType::kF16;
};

// Keys and values of one rank's heads for each slot's tokens. Cell `slot * context + position`
// belongs to one token; a row holds the heads of that token side by side. With latent attention a
// row is [latent | rotary key], values are its first part, and every rank that holds heads holds
// all of it. Index keys have rows of their own.
class KvCache {
 public:
  static Result<KvCache> allocate(const Device& device, const ModelSpec& spec,
                                  const CacheShape& shape);

  std::int64_t context() const { return shape_.context; }
  std::uint64_t bytes() const {
    return buffer_ == nullptr ? 0 : ggml_backend_buffer_get_size(buffer_.get());
  }
  // [elements of a token, context x slots]; null if this rank holds no heads.
  ggml_tensor* keys(int layer) const { return at(keys_, layer); }
  ggml_tensor* values(int layer) const { return at(values_, layer); }  // null with latent attention
  // F16 [elements of an index key, context x slots]; null for layers without an indexer.
  ggml_tensor* index_keys(int layer) const { return at(index_keys_, layer); }

 private:
  ggml_tensor* at(const std::vector<ggml_tensor*>& list, int layer) const {
    return list.empty() ? nullptr : list[static_cast<std::size_t>(layer - shape_.layers.begin)];
  }
  ggml_context_ptr tensors_;
  ggml_backend_buffer_ptr buffer_;
  std::vector<ggml_tensor*> keys_;
  std::vector<ggml_tensor*> values_;
  std::vector<ggml_tensor*> index_keys_;
  CacheShape shape_;
};

}  // namespace sinew
