#include "shard/load_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/process.h"
#include "support/tiny_model.h"

namespace sinew {
namespace {

using test::tiny_deepseek_spec;
using test::tiny_llama_spec;
using test::TinyModel;
using ::testing::HasSubstr;

using Lists = std::vector<std::vector<LoadItem>>;

Lists lists_of(const TinyModel& model, const Plan& plan) {
  Lists lists;
  for (Rank rank = 0; rank < plan.ranks; ++rank)
    lists.push_back(make_load_list(model.tensors, plan, rank));
  return lists;
}

// Shapes of any family that a file could have.
ModelSpec random_spec(std::mt19937& random) {
  const auto one_of = [&](std::vector<int> values) { return values[random() % values.size()]; };
  const std::vector<ModelSpec> specs = test::tiny_specs();
  ModelSpec spec = specs[random() % specs.size()];
  spec.embedding = one_of({32, 64, 256});
  spec.vocabulary = one_of({96, 100, 257, 320});
  spec.feed_forward = one_of({96, 256, 768});
  spec.tied_output = random() % 2 == 0;
  if (spec.latent.kv_rank == 0) {
    spec.kv_heads = one_of({1, 2, 3, 5, 8});
    spec.heads = spec.kv_heads * one_of({1, 2, 4});
    spec.value_dimensions = one_of({32, 64});
    return spec;
  }
  spec.heads = spec.kv_heads = one_of({1, 4, 7, 16});
  // An indexer needs the low-rank queries.
  spec.latent.query_rank = spec.indexer.heads > 0 ? 64 : one_of({0, 64});
  spec.experts.columns = one_of({64, 96, 256});
  spec.experts.shared = one_of({0, 1, 2});
  spec.experts.dense_layers = one_of({0, 1, 2});
  return spec;
}

// Any shares, one to two stages, experts cut or whole.
Layout random_layout(std::mt19937& random, const ModelSpec& spec) {
  Layout layout;
  layout.shares.resize(1 + random() % 8);
  for (double& share : layout.shares) share = static_cast<double>(1 + random() % 4);
  const auto ranks = static_cast<int>(layout.shares.size());
  if (ranks > 1 && random() % 2 == 0) {
    const int first = 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1));
    layout.stages = {first, ranks - first};
  }
  layout.whole_experts = spec.experts.count > 0 && random() % 2 == 0;
  return layout;
}

TEST(LoadList, RandomSharesOfRandomModelsCoverEveryByte) {
  std::mt19937 random(29);
  int covered = 0;
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kQ8_0,
                                TensorType::kQ4_0, TensorType::kQ4_K, TensorType::kQ6_K}) {
    for (int i = 0; i < 12; ++i) {
      const auto model = TinyModel::make(random_spec(random), type);
      ASSERT_TRUE(model) << model.error().message;
      for (int round = 0; round < 8; ++round) {
        const auto plan =
            make_plan((*model)->spec, (*model)->tensors, random_layout(random, (*model)->spec));
        if (!plan) {  // more ranks than units
          ASSERT_EQ(plan.error().code, ErrorCode::kUsage);
          continue;
        }
        const Lists lists = lists_of(**model, *plan);
        const Status status = check_coverage((*model)->tensors, *plan, lists);
        ASSERT_TRUE(status) << status.error().message;
        for (Rank rank = 0; rank < plan->ranks; ++rank) {
          std::uint64_t bytes = 0;
          for (const LoadItem& item : lists[static_cast<std::size_t>(rank)])
            bytes += item.bytes.total();
          ASSERT_EQ(bytes, rank_memory((*model)->spec, (*model)->tensors, *plan, rank, 64,
                                       TensorType::kF16)
                               .weight_bytes);
        }
        ++covered;
      }
    }
  }
  EXPECT_GT(covered, 300);
}

class LoadListOfTinyModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto text = test::read_file(SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf");
    ASSERT_TRUE(text) << text.error().message;
    const ByteSpan bytes = as_bytes(*text);
    auto model = TinyModel::from_file({bytes.begin(), bytes.end()});
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
    const auto plan = make_plan(model_->spec, model_->tensors, Layout{{2, 1, 1}, {}, false});
    ASSERT_TRUE(plan) << plan.error().message;
    plan_ = *plan;
    lists_ = lists_of(*model_, plan_);
    ASSERT_TRUE(check_coverage(model_->tensors, plan_, lists_));
  }

  static LoadItem& item(std::vector<LoadItem>& list, const std::string& name) {
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const LoadItem& one) { return one.name == name; });
    EXPECT_NE(found, list.end()) << name;
    return *found;
  }
  // The plan with as many ranks as there are lists.
  Plan plan_for(const Lists& lists) const {
    Plan plan = plan_;
    plan.ranks = plan.stages.front().ranks = static_cast<int>(lists.size());
    return plan;
  }
  void expect_found(const Lists& lists, const std::string& name) const {
    const Status status = check_coverage(model_->tensors, plan_for(lists), lists);
    ASSERT_FALSE(status) << name;
    EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    EXPECT_THAT(status.error().message, HasSubstr("'" + name + "'"));
  }
  // `damage` done to every tensor in turn, on the last rank, must be found.
  template <typename Damage>
  void expect_always_found(const Damage& damage) {
    for (const BoundTensor& tensor : model_->tensors) {
      Lists lists = lists_;
      damage(lists.back(), item(lists.back(), tensor.decl.name));
      expect_found(lists, tensor.decl.name);
    }
  }

  std::unique_ptr<TinyModel> model_;
  Plan plan_;
  Lists lists_;
};

TEST_F(LoadListOfTinyModel, IsInTheOrderOfTheFileWithLocalShapes) {
  for (const auto& list : lists_) {
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end(), [](const auto& a, const auto& b) {
      return a.file_offset < b.file_offset;
    }));
    for (const LoadItem& one : list) {
      const TensorTypeTraits& traits = *tensor_type_traits(one.type);
      const auto elements =
          static_cast<std::uint64_t>(one.shape[0] * one.shape[1] * one.shape[2] * one.shape[3]);
      EXPECT_EQ(elements / traits.block_length * traits.block_bytes, one.bytes.total()) << one.name;
    }
  }
}

TEST_F(LoadListOfTinyModel, RemovedSliceIsFound) {
  expect_always_found([](std::vector<LoadItem>& list, LoadItem& one) {
    list.erase(list.begin() + (&one - list.data()));
  });
}

TEST_F(LoadListOfTinyModel, SliceThatOneRankReadsTwiceIsFound) {
  expect_always_found([](std::vector<LoadItem>& list, const LoadItem& one) {
    const LoadItem copy = one;
    list.push_back(copy);
  });
}

TEST_F(LoadListOfTinyModel, SliceThatTwoRanksReadIsFound) {
  for (const BoundTensor& tensor : model_->tensors) {
    if (tensor.decl.split.mirrored) continue;
    // A fourth rank with all that is mirrored, and one slice of another's.
    Lists lists = lists_;
    lists.emplace_back();
    for (const BoundTensor& other : model_->tensors)
      if (other.decl.split.mirrored) lists.back().push_back(item(lists_.front(), other.decl.name));
    ASSERT_TRUE(check_coverage(model_->tensors, plan_for(lists), lists));
    lists.back().push_back(item(lists_[1], tensor.decl.name));
    expect_found(lists, tensor.decl.name);
  }
}

TEST_F(LoadListOfTinyModel, ShiftedSliceIsFound) {
  expect_always_found([](auto&, LoadItem& one) { ++one.bytes.offset; });
  expect_always_found([](auto&, LoadItem& one) { one.bytes.offset -= 1; });
  expect_always_found([](auto&, LoadItem& one) { one.file_offset += 32; });
  expect_always_found([](auto&, LoadItem& one) { ++one.part; });
}

TEST_F(LoadListOfTinyModel, ShortenedSliceIsFound) {
  expect_always_found([](auto&, LoadItem& one) { one.bytes.chunk_bytes -= 1; });
  expect_always_found([](auto&, LoadItem& one) { one.bytes.count -= 1; });
}

TEST_F(LoadListOfTinyModel, RankWithoutHeadsReadsNothingOfThem) {
  const auto plan = make_plan(model_->spec, model_->tensors, Layout{{40, 1}, {}, false});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->range(1, Dimension::kHeads).size(), 0);
  const Lists lists = lists_of(*model_, *plan);
  EXPECT_TRUE(check_coverage(model_->tensors, *plan, lists));
  for (const LoadItem& one : lists[1])
    EXPECT_EQ(one.name.find("attn_output"), std::string::npos) << one.name;
}

}  // namespace
}  // namespace sinew
