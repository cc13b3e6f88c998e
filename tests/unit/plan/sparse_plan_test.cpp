// Plans of models with sparse attention: index keys need memory, and a layer that uses what the one
// before has chosen begins no stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "support/tiny_model.h"

namespace sinew {
namespace {

using test::tiny_sparse_spec;
using test::TinyModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<TinyModel> sharing_model(const std::vector<bool>& layers) {
  ModelSpec spec = tiny_sparse_spec("glm-dsa");
  spec.layers = static_cast<int>(layers.size());
  spec.indexer.layers = layers;
  auto model = TinyModel::make(spec, TensorType::kF16);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(*model);
}

// First layers of the stages.
Result<std::vector<std::int64_t>> beginnings(const std::vector<bool>& layers,
                                             const std::vector<double>& shares) {
  const auto model = sharing_model(layers);
  const Layout layout{shares, std::vector<int>(shares.size(), 1), false};
  SINEW_ASSIGN(const Plan plan, make_plan(model->spec, model->tensors, layout));
  std::vector<std::int64_t> first;
  std::int64_t end = 0;
  for (const Stage& stage : plan.stages) {
    EXPECT_EQ(stage.layers.begin, end);
    EXPECT_GT(stage.layers.size(), 0);
    end = stage.layers.end;
    first.push_back(stage.layers.begin);
  }
  EXPECT_EQ(end, model->spec.layers);
  return first;
}

TEST(SparsePlan, StagesBeginWithALayerThatHasAnIndexer) {
  constexpr bool kOwn = true;
  constexpr bool kShared = false;
  const std::vector<bool> layers{kOwn,    kOwn, kShared, kShared, kShared,
                                 kShared, kOwn, kShared, kOwn,    kShared};
  EXPECT_THAT(*beginnings(layers, {1}), ElementsAre(0));
  EXPECT_THAT(*beginnings(layers, {1, 1}), ElementsAre(0, 6));
  EXPECT_THAT(*beginnings(layers, {1, 9}), ElementsAre(0, 1));
  EXPECT_THAT(*beginnings(layers, {9, 1}), ElementsAre(0, 8));
  EXPECT_THAT(*beginnings(layers, {1, 1, 1}), ElementsAre(0, 6, 8));
  EXPECT_THAT(*beginnings(layers, {8, 1, 1, 1}), ElementsAre(0, 1, 6, 8));
  const auto too_many = beginnings(layers, {1, 1, 1, 1, 1});
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, ErrorCode::kUsage);
  EXPECT_THAT(too_many.error().message, HasSubstr("only 4 of 10 layers have an indexer"));
}

TEST(SparsePlan, IndexKeysAreCountedInF16WhereALayerHasThemAndTheRankHasHeads) {
  const auto model = sharing_model({true, false, true});
  const auto plan =
      make_plan(model->spec, model->tensors, Layout{std::vector<double>(8, 1.0), {}, false});
  ASSERT_TRUE(plan) << plan.error().message;
  const auto bytes = [&](TensorType type) {
    return rank_memory(model->spec, model->tensors, *plan, 0, 100, type).cache_bytes;
  };
  // 3 layers of a latent row of 32 + 16, 2 of an index key of 32.
  EXPECT_EQ(bytes(TensorType::kF16), (3u * 48 + 2 * 32) * 2 * 100);
  ModelSpec two_heads = tiny_sparse_spec("deepseek32");
  two_heads.heads = two_heads.kv_heads = 2;
  const auto few = TinyModel::make(two_heads, TensorType::kF16);
  ASSERT_TRUE(few) << few.error().message;
  const auto thirds = make_plan((*few)->spec, (*few)->tensors, Layout{{1, 1, 1}, {}, false});
  ASSERT_TRUE(thirds) << thirds.error().message;
  EXPECT_EQ(
      rank_memory((*few)->spec, (*few)->tensors, *thirds, 2, 100, TensorType::kF16).cache_bytes,
      0u);
}

}  // namespace
}  // namespace sinew
