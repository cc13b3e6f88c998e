#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sinew {

// The element types of GGUF tensors, numbered as in the file (ggml's ids). Values are taken from
// files unchecked only through `tensor_type_traits`.
enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

// One more than the largest id that ggml 0.25 knows; the ids below it have gaps.
inline constexpr std::uint32_t kTensorTypeIdEnd = 43;

// Storage of one type: elements are stored in blocks of `block_length` along the first dimension,
// each block in `block_bytes` bytes. F32, F16, .. have a block length of 1.
struct TensorTypeTraits {
  std::string_view name;  // as ggml prints it: "f16", "q4_0", "q4_K"
  std::uint32_t block_length;
  std::uint32_t block_bytes;
};

// Null for an id that ggml 0.25 does not know or has removed.
const TensorTypeTraits* tensor_type_traits(TensorType type);

// The type that ggml calls `name`, in any case of letters ("Q4_K", "q4_k"); nothing if there is
// none.
std::optional<TensorType> tensor_type_named(std::string_view name);

}  // namespace sinew
