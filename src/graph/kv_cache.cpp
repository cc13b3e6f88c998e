#include "graph/kv_cache.h"

#include <ggml.h>

#include "base/bytes.h"

namespace sinew {

Result<KvCache> KvCache::allocate(const Device& device, const ModelSpec& spec,
                                  const CacheShape& shape) {
  KvCache cache;
  cache.shape_ = shape;
  if (shape.kv_heads == 0) return cache;
  const std::int64_t cells = shape.context * shape.slots;
  const std::int64_t key_elements = spec.cached_keys(shape.kv_heads);
  const std::int64_t value_elements = spec.cached_values(shape.kv_heads);
  const auto type = static_cast<ggml_type>(shape.type);
  const auto layers = static_cast<std::size_t>(shape.layers.size());
  cache.tensors_.reset(ggml_init({ggml_tensor_overhead() * (3 * layers + 1), nullptr, true}));
  if (cache.tensors_ == nullptr)
    return fail(ErrorCode::kNoMemory, "no memory for the KV cache's headers");
  for (std::size_t layer = 0; layer < layers; ++layer) {
    cache.keys_.push_back(ggml_new_tensor_2d(cache.tensors_.get(), type, key_elements, cells));
    if (value_elements > 0)
      cache.values_.push_back(
          ggml_new_tensor_2d(cache.tensors_.get(), type, value_elements, cells));
    const std::int64_t index_elements = spec.cached_index_keys(
        static_cast<int>(shape.layers.begin) + static_cast<int>(layer), shape.kv_heads);
    cache.index_keys_.push_back(
        index_elements == 0
            ? nullptr
            : ggml_new_tensor_2d(cache.tensors_.get(), GGML_TYPE_F16, index_elements, cells));
  }
  cache.buffer_.reset(
      ggml_backend_alloc_ctx_tensors_from_buft(cache.tensors_.get(), device.default_buffers()));
  if (cache.buffer_ == nullptr)
    return fail(ErrorCode::kNoMemory,
                "a KV cache for {} tokens does not fit the memory of {}; lower --ctx", cells,
                device.name());
  // Cells that were never written are masked out, but masked NaNs would still spread.
  ggml_backend_buffer_clear(cache.buffer_.get(), 0);
  return cache;
}

}  // namespace sinew
