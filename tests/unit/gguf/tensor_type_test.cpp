#include "gguf/tensor_type.h"

#include <gtest/gtest.h>

#include <set>

namespace sinew {
namespace {

TEST(TensorType, RemovedAndUnknownIdsHaveNoTraits) {
  for (const std::uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 44u, 0xFFFFFFFFu})
    EXPECT_EQ(tensor_type_traits(static_cast<TensorType>(id)), nullptr) << id;
}

TEST(TensorType, EveryOtherIdHasANameOfItsOwnThatFindsIt) {
  std::set<std::string_view> names;
  for (std::uint32_t id = 0; id < kTensorTypeIdEnd; ++id) {
    const auto type = static_cast<TensorType>(id);
    const TensorTypeTraits* traits = tensor_type_traits(type);
    if (traits == nullptr) continue;
    EXPECT_TRUE(names.insert(traits->name).second) << traits->name;
    EXPECT_EQ(tensor_type_named(traits->name), type);
    EXPECT_GT(traits->block_bytes, 0u);
    EXPECT_EQ(256 % traits->block_length, 0u);
  }
  EXPECT_EQ(names.size(), 35u);
}

TEST(TensorType, NamesAreFoundInAnyCaseAndOnlyWhole) {
  EXPECT_EQ(tensor_type_named("Q4_k"), TensorType::kQ4_K);
  EXPECT_EQ(tensor_type_named("BF16"), TensorType::kBF16);
  EXPECT_EQ(tensor_type_named("q4"), std::nullopt);
  EXPECT_EQ(tensor_type_named("q4_K_M"), std::nullopt);
  EXPECT_EQ(tensor_type_named(""), std::nullopt);
}

}  // namespace
}  // namespace sinew
