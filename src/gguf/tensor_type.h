#pragma once

#include <cstdint>
#include <string_view>

namespace sinew {

// The element types of GGUF tensors, numbered as in the file (ggml's ids). Values are taken from files
// unchecked only through `tensor_type_traits`.
enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ8_0 = 8,
  kQ4_K = 12,
  kI32 = 26,
  kBF16 = 30,
};

// Storage of one type: elements are stored in blocks of `block_length` along the first dimension, each
// block in `block_bytes` bytes. F32, F16, .. have a block length of 1.
struct TensorTypeTraits {
  std::string_view name;  // as ggml prints it, lower case: "q4_K"
  std::uint32_t block_length;
  std::uint32_t block_bytes;
};

// Null for an id that ggml 0.25 does not know or has removed.
const TensorTypeTraits* tensor_type_traits(TensorType type);

}  // namespace sinew
