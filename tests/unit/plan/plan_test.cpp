#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "support/tiny_model.h"

namespace sinew {
namespace {

using test::tiny_deepseek_spec;
using test::tiny_llama_spec;
using test::TinyModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Apportion, ExactSharesAreKept) {
  EXPECT_THAT(apportion(8, {3, 3, 1, 1}), ElementsAre(3, 3, 1, 1));
  EXPECT_THAT(apportion(8, {0.25, 0.75}), ElementsAre(2, 6));
  EXPECT_THAT(apportion(5, {7}), ElementsAre(5));
}

TEST(Apportion, GivesWhatIsLeftToTheLargestRemainders) {
  EXPECT_THAT(apportion(5, {1, 1, 2}), ElementsAre(1, 1, 3));        // 1.25, 1.25, 2.5
  EXPECT_THAT(apportion(10, {4, 3, 2.6}), ElementsAre(4, 3, 3));     // 4.17, 3.13, 2.71
  EXPECT_THAT(apportion(7, {1, 2, 3, 4}), ElementsAre(1, 1, 2, 3));  // 0.7, 1.4, 2.1, 2.8
}

TEST(Apportion, GivesEqualRemaindersToTheLargerWeightThenTheLowerRank) {
  EXPECT_THAT(apportion(2, {1, 3}), ElementsAre(0, 2));  // 0.5, 1.5
  EXPECT_THAT(apportion(10, {1, 1, 1, 1}), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(apportion(1, {1, 1, 1}), ElementsAre(1, 0, 0));
}

TEST(Apportion, NothingIsDividedIntoNothing) {
  EXPECT_THAT(apportion(0, {1, 2}), ElementsAre(0, 0));
}

TEST(Apportion, WeightsAtTheEdgeOfDoubleStillSum) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  constexpr double kSmall = std::numeric_limits<double>::denorm_min();
  EXPECT_THAT(apportion(7, {kHuge, kHuge}), ElementsAre(4, 3));
  EXPECT_THAT(apportion(7, {kSmall, kSmall, kSmall}), ElementsAre(3, 2, 2));
  EXPECT_THAT(apportion(7, {kSmall, kHuge}), ElementsAre(0, 7));
}

TEST(Apportion, RandomSharesSumAndStayWithinOneUnitOfTheirPart) {
  std::mt19937 random(17);
  std::uniform_real_distribution<double> exponent(-3, 3);
  for (int round = 0; round < 5000; ++round) {
    const std::int64_t units = static_cast<std::int64_t>(random() % 3000);
    std::vector<double> weights(1 + random() % 8);
    for (double& weight : weights)
      weight = random() % 3 == 0 ? static_cast<double>(1 + random() % 5)
                                 : std::pow(10.0, exponent(random));
    const std::vector<std::int64_t> shares = apportion(units, weights);
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), units);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_GE(shares[i], 0);
      // The last bits of a product of numbers up to 3000.
      ASSERT_LT(std::abs(static_cast<double>(shares[i]) -
                         static_cast<double>(units) * weights[i] / total),
                1 + 1e-9);
      for (std::size_t j = 0; j < i; ++j) {
        if (weights[i] > weights[j]) {
          ASSERT_GE(shares[i], shares[j]);
        }
      }
    }
    // Only the proportion counts; a power of two changes no bit of it.
    for (double& weight : weights) weight *= 1024;
    ASSERT_EQ(apportion(units, weights), shares);
  }
}

std::unique_ptr<TinyModel> model_of(const ModelSpec& spec, TensorType type) {
  auto model = TinyModel::make(spec, type);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(*model);
}

Result<Plan> plan_of(const TinyModel& model, const std::vector<double>& weights) {
  return make_plan(model.spec, model.tensors, Layout{weights, {}, false});
}

std::vector<std::int64_t> sizes(const Plan& plan, Dimension dimension) {
  std::vector<std::int64_t> all;
  for (Rank rank = 0; rank < plan.ranks; ++rank) all.push_back(plan.range(rank, dimension).size());
  return all;
}

TEST(MakePlan, UnequalSharesGiveUnequalParts) {
  const auto model = model_of(tiny_llama_spec(), TensorType::kQ8_0);
  const auto plan = plan_of(*model, {3, 1});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(sizes(*plan, Dimension::kHeads), ElementsAre(3, 1));
  EXPECT_THAT(sizes(*plan, Dimension::kFeedForward), ElementsAre(192, 64));
  EXPECT_THAT(sizes(*plan, Dimension::kVocabulary), ElementsAre(64, 32));
  EXPECT_THAT(sizes(*plan, Dimension::kExpertColumns), ElementsAre(0, 0));
}

TEST(MakePlan, MoreRanksThanHeadsLeaveRanksWithoutHeads) {
  ModelSpec spec = tiny_llama_spec();
  spec.kv_heads = 2;
  const auto model = model_of(spec, TensorType::kQ8_0);
  const auto plan = plan_of(*model, std::vector<double>(8, 1.0));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(sizes(*plan, Dimension::kHeads), ElementsAre(1, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(sizes(*plan, Dimension::kFeedForward), ElementsAre(32, 32, 32, 32, 32, 32, 32, 32));
}

TEST(MakePlan, RankLeftWithNothingIsUsage) {
  const auto model = model_of(tiny_llama_spec(), TensorType::kQ8_0);
  const auto plan = plan_of(*model, {1000000, 1});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  EXPECT_THAT(plan.error().message, HasSubstr("rank 1 would hold nothing"));
  // Blocks of 256: one unit of heads, one of columns, three of rows.
  const auto coarse = model_of(tiny_llama_spec(), TensorType::kQ4_K);
  EXPECT_TRUE(plan_of(*coarse, {1, 1, 1}));
  const auto too_many = plan_of(*coarse, {1, 1, 1, 1});
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, ErrorCode::kUsage);
}

TEST(MakePlan, WholeExpertsAreHandedOutAndTheirColumnsStayTogether) {
  const auto model = model_of(tiny_deepseek_spec(), TensorType::kQ8_0);
  const auto plan = make_plan(model->spec, model->tensors, Layout{{3, 1}, {}, true});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(sizes(*plan, Dimension::kExperts), ElementsAre(3, 1));
  EXPECT_THAT(sizes(*plan, Dimension::kExpertColumns), ElementsAre(128, 128));
  EXPECT_THAT(explain_rank(model->spec, *plan, 1), HasSubstr("1 of 4 experts"));
  for (const BoundTensor& tensor : model->tensors) {
    if (tensor.decl.expert_axis < 0) continue;
    const auto part = plan->part(0, tensor.decl);
    ASSERT_TRUE(part) << tensor.decl.name;
    EXPECT_EQ(part->axis, tensor.decl.expert_axis);
    EXPECT_EQ(part->range, (IndexRange{0, 3}));
  }
}

TEST(MakePlan, StagesDivideLayersByTheirSharesAndOnlyTheEndsHoldTheVocabulary) {
  ModelSpec spec = tiny_llama_spec();
  spec.layers = 8;
  const auto model = model_of(spec, TensorType::kQ8_0);
  const auto plan = make_plan(model->spec, model->tensors, Layout{{2, 1, 1}, {1, 2}, false});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->stages[0].layers, (IndexRange{0, 4}));
  EXPECT_EQ(plan->stages[1].layers, (IndexRange{4, 8}));
  EXPECT_THAT(sizes(*plan, Dimension::kHeads), ElementsAre(4, 2, 2));
  const auto held = [&](Rank rank, const std::string& name) {
    for (const BoundTensor& tensor : model->tensors)
      if (tensor.decl.name == name) return plan->part(rank, tensor.decl).has_value();
    ADD_FAILURE() << name;
    return false;
  };
  EXPECT_TRUE(held(0, "token_embd.weight"));
  EXPECT_FALSE(held(1, "token_embd.weight"));
  EXPECT_FALSE(held(0, "output.weight"));
  EXPECT_TRUE(held(2, "output.weight"));
  EXPECT_FALSE(held(0, "blk.4.attn_norm.weight"));
  EXPECT_TRUE(held(1, "blk.4.attn_norm.weight"));
  EXPECT_THAT(explain_rank(model->spec, *plan, 1), HasSubstr("layers 4 to 7 of 8"));
}

TEST(MakePlan, ImpossibleStagesAndExpertsAreUsage) {
  const auto model = model_of(tiny_llama_spec(), TensorType::kF16);
  const auto refused = [&](const Layout& layout, const char* cause) {
    const auto plan = make_plan(model->spec, model->tensors, layout);
    ASSERT_FALSE(plan) << cause;
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
    EXPECT_THAT(plan.error().message, HasSubstr(cause));
  };
  refused({{1, 1}, {1, 2}, false}, "3 ranks together");
  refused({{1, 1}, {2, 0}, false}, "stage of 0 ranks");
  refused({{1, 1, 1}, {1, 1, 1}, false}, "3 pipeline stages for 2 layers");
  refused({{1, 1}, {2147483647, 2147483647, 4}, false}, "stage of 2147483647");
  refused({{1, 1}, {}, true}, "no experts");
}

TEST(CheckCacheType, HeadsThatAreNoWholeBlocksAreRefused) {
  ModelSpec spec = tiny_llama_spec();
  EXPECT_TRUE(check_cache_type(spec, TensorType::kQ8_0));
  spec.key_dimensions = 48;
  EXPECT_TRUE(check_cache_type(spec, TensorType::kF16));
  const Status status = check_cache_type(spec, TensorType::kQ4_0);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("--cache-type f16"));
  EXPECT_FALSE(check_cache_type(spec, TensorType::kI32));
}

TEST(MakePlan, ImpossibleWeightsAreUsage) {
  const auto model = model_of(tiny_llama_spec(), TensorType::kF16);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> impossible{
      {}, std::vector<double>(9, 1.0), {1, 0}, {1, -1}, {1, NAN}, {kInfinity, 1}};
  for (const std::vector<double>& weights : impossible) {
    const auto plan = plan_of(*model, weights);
    ASSERT_FALSE(plan) << testing::PrintToString(weights);
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  }
}

TEST(MakePlan, RangesFollowEachOtherAndUnitsAreWholeBlocks) {
  std::mt19937 random(23);
  int planned = 0;
  for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0, TensorType::kQ4_K}) {
    for (ModelSpec spec : {tiny_llama_spec(), tiny_deepseek_spec()}) {
      spec.feed_forward = 1024;
      spec.heads = 16;
      spec.vocabulary = 330;
      const auto model = model_of(spec, type);
      for (int round = 0; round < 40; ++round) {
        std::vector<double> weights(1 + random() % 8);
        for (double& weight : weights) weight = static_cast<double>(1 + random() % 6);
        const auto plan = plan_of(*model, weights);
        if (!plan) {
          ASSERT_EQ(plan.error().code, ErrorCode::kUsage);
          continue;
        }
        ++planned;
        for (int d = 0; d < kDimensionCount; ++d) {
          // Experts are cut by columns here: every rank has some of each.
          if (static_cast<Dimension>(d) == Dimension::kExperts) continue;
          std::int64_t next = 0;
          for (Rank rank = 0; rank < plan->ranks; ++rank) {
            const IndexRange range = plan->range(rank, static_cast<Dimension>(d));
            ASSERT_EQ(range.begin, next);
            ASSERT_GE(range.end, range.begin);
            next = range.end;
          }
          ASSERT_EQ(next, dimension_size(model->spec, static_cast<Dimension>(d)));
        }
        for (const BoundTensor& tensor : model->tensors) {
          const SplitRule& rule = tensor.decl.split;
          if (rule.mirrored || rule.axis != 0) continue;
          for (Rank rank = 0; rank < plan->ranks; ++rank) {
            const IndexRange range = plan->range(rank, rule.dimension);
            const auto block = static_cast<std::int64_t>(tensor.info->traits().block_length);
            ASSERT_EQ(range.begin * rule.elements_per_index % block, 0) << tensor.decl.name;
            ASSERT_EQ(range.end * rule.elements_per_index % block, 0) << tensor.decl.name;
          }
        }
      }
    }
  }
  EXPECT_GT(planned, 120);
}

TEST(ExplainRank, NamesEveryDimensionThatTheModelHas) {
  const auto model = model_of(tiny_llama_spec(), TensorType::kQ8_0);
  const auto plan = plan_of(*model, {3, 1});
  ASSERT_TRUE(plan);
  EXPECT_EQ(explain_rank(model->spec, *plan, 1),
            "1 of 4 attention heads, 64 of 256 feed-forward columns, 32 of 96 vocabulary rows");
}

TEST(RankMemory, WeightsOfAllRanksAreTheFilesPlusTheCopiesOfMirroredOnes) {
  const auto model = model_of(tiny_deepseek_spec(), TensorType::kQ8_0);
  const auto plan = plan_of(*model, {2, 1, 1});
  ASSERT_TRUE(plan) << plan.error().message;
  std::uint64_t all = 0;
  for (Rank rank = 0; rank < 3; ++rank)
    all += rank_memory(model->spec, model->tensors, *plan, rank, 0, TensorType::kF16).weight_bytes;
  std::uint64_t expected = 0;
  for (const BoundTensor& tensor : model->tensors)
    expected += tensor.info->bytes * (tensor.decl.split.mirrored ? 3 : 1);
  EXPECT_EQ(all, expected);
}

TEST(RankMemory, CacheIsInF16OfTheHeadsHeld) {
  const auto llama = model_of(tiny_llama_spec(), TensorType::kQ8_0);
  const auto plan = plan_of(*llama, {3, 1});
  ASSERT_TRUE(plan);
  // 3 heads x (32 + 32) elements x 2 bytes x 2 layers x 100 tokens.
  EXPECT_EQ(rank_memory(llama->spec, llama->tensors, *plan, 0, 100, TensorType::kF16).cache_bytes,
            3u * 64 * 2 * 2 * 100);
  // A latent row is whole on every rank with heads, and nowhere else.
  ModelSpec spec = tiny_deepseek_spec();
  spec.heads = 2;
  const auto latent = model_of(spec, TensorType::kQ8_0);
  const auto thirds = plan_of(*latent, {1, 1, 1});
  ASSERT_TRUE(thirds) << thirds.error().message;
  EXPECT_EQ(
      rank_memory(latent->spec, latent->tensors, *thirds, 1, 100, TensorType::kF16).cache_bytes,
      48u * 2 * 2 * 100);
  EXPECT_EQ(
      rank_memory(latent->spec, latent->tensors, *thirds, 2, 100, TensorType::kF16).cache_bytes,
      0u);
}

}  // namespace
}  // namespace sinew
