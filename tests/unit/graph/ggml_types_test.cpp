// GGUF's tensor types against ggml's.
#include <ggml.h>
#include <gtest/gtest.h>

#include "gguf/tensor_type.h"

namespace sinew {
namespace {

TEST(GgmlTypes, OurTableAgreesWithGgmlForEveryId) {
  ASSERT_EQ(kTensorTypeIdEnd, static_cast<std::uint32_t>(GGML_TYPE_COUNT));
  for (std::uint32_t id = 0; id < kTensorTypeIdEnd; ++id) {
    const auto type = static_cast<ggml_type>(id);
    const TensorTypeTraits* traits = tensor_type_traits(static_cast<TensorType>(id));
    const bool removed = ggml_type_size(type) == 0;
    ASSERT_EQ(traits == nullptr, removed) << id;
    if (removed) continue;
    EXPECT_EQ(traits->name, ggml_type_name(type)) << id;
    EXPECT_EQ(traits->block_length, ggml_blck_size(type)) << traits->name;
    EXPECT_EQ(traits->block_bytes, ggml_type_size(type)) << traits->name;
  }
}

}  // namespace
}  // namespace sinew
