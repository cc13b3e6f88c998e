// What the families with sparse attention say about themselves, and DeepSeek's files that must not
// be run on a guess.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace sinew {
namespace {

using test::GgufWriter;
using test::tiny_deepseek_spec;
using test::tiny_metadata;
using test::tiny_sparse_spec;
using test::TinyModel;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ModelSpec> read(GgufWriter writer, std::uint64_t vocabulary = 96) {
  writer.tensor("token_embd.weight", TensorType::kF16, {64, vocabulary});
  for (int i = 0; i < 100; ++i) writer.tensor(fmt::format("x{}", i), TensorType::kF16, {1});
  const test::Bytes file = writer.bytes();
  const GgufPart part{"models/tiny.gguf", file};
  SINEW_ASSIGN(const GgufModel model, GgufModel::parse(std::span(&part, 1)));
  return read_spec(model);
}

void expect_refused(const Result<ModelSpec>& result, ErrorCode code, const char* cause) {
  ASSERT_FALSE(result) << cause;
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(cause));
}

TEST(SparseSpec, BothFamiliesAreReadFromTheirKeys) {
  for (const char* architecture : {"deepseek32", "glm-dsa"}) {
    SCOPED_TRACE(architecture);
    const auto model = TinyModel::make(tiny_sparse_spec(architecture), TensorType::kF16);
    ASSERT_TRUE(model) << model.error().message;
    const ModelSpec& spec = (*model)->spec;
    EXPECT_EQ(spec.family, Family::kDeepseek32);
    EXPECT_EQ(spec.indexer.heads, 4);
    EXPECT_EQ(spec.indexer.dimensions, 32);
    EXPECT_EQ(spec.indexer.chosen, 16);
    EXPECT_THAT(spec.indexer.layers, Each(true));
    EXPECT_FALSE(spec.rope.neox);
    EXPECT_EQ(spec.indexer.rope.neox, std::string_view(architecture) == "deepseek32");
    EXPECT_EQ(spec.indexer.rope.dimensions, spec.rope.dimensions);
    EXPECT_EQ(spec.experts.gating, ExpertSpec::Gating::kSigmoid);
    EXPECT_EQ(spec.cached_index_keys(0, 3), 32);
    EXPECT_EQ(spec.cached_index_keys(0, 0), 0);
  }
  EXPECT_EQ(tiny_deepseek_spec().cached_index_keys(0, 3), 0);
}

TEST(SparseSpec, ContradictionsAreNamed) {
  for (const char* architecture : {"deepseek32", "glm-dsa"}) {
    SCOPED_TRACE(architecture);
    const auto refused = [&](void (*change)(ModelSpec&), const char* cause) {
      ModelSpec spec = tiny_sparse_spec(architecture);
      change(spec);
      expect_refused(read(tiny_metadata(spec)), ErrorCode::kInvalidFile, cause);
    };
    refused([](ModelSpec& spec) { spec.latent.query_rank = 0; }, "attention.q_lora_rank");
    refused([](ModelSpec& spec) { spec.latent.expanded = true; }, "attention.key_length_mla");
    refused([](ModelSpec& spec) { spec.experts.count = 0; }, "expert_count");
    refused([](ModelSpec& spec) { spec.indexer.dimensions = 8; }, "attention.indexer.key_length");
    refused([](ModelSpec& spec) { spec.indexer.chosen = 0; }, "attention.indexer.top_k");
  }
  ModelSpec bare = tiny_sparse_spec("deepseek32");
  bare.indexer.heads = 0;
  GgufWriter writer = tiny_metadata(bare);
  expect_refused(read(writer), ErrorCode::kInvalidFile, "attention.indexer.head_count");
  for (const char* key : {"head_count", "key_length", "top_k"})
    writer.add(fmt::format("deepseek32.attention.indexer.{}", key), std::uint32_t{32});
  expect_refused(read(writer), ErrorCode::kInvalidFile, "expert_gating_func");
}

TEST(SparseSpec, GlmLayersShareAsTheFileListsOrAsTheModelDoes) {
  ModelSpec spec = tiny_sparse_spec("glm-dsa");
  spec.indexer.layers = {true, false};
  const auto listed = read(tiny_metadata(spec));
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_TRUE(listed->may_begin_stage(0));
  EXPECT_FALSE(listed->may_begin_stage(1));
  EXPECT_EQ(listed->cached_index_keys(1, 3), 0);

  spec.indexer.layers = {false, true};
  expect_refused(read(tiny_metadata(spec)), ErrorCode::kInvalidFile, "the first layer");
  spec.indexer.layers = {true};
  expect_refused(read(tiny_metadata(spec)), ErrorCode::kInvalidFile, "attention.indexer.types");

  spec.indexer.layers.clear();  // no list
  spec.layers = 11;
  const auto older = read(tiny_metadata(spec));
  ASSERT_TRUE(older) << older.error().message;
  EXPECT_THAT(older->indexer.layers, Each(true));
  spec.context_trained = 1048576;
  const auto newer = read(tiny_metadata(spec));
  ASSERT_TRUE(newer) << newer.error().message;
  EXPECT_THAT(newer->indexer.layers,
              ElementsAre(true, true, true, false, false, false, true, false, false, false, true));

  GgufWriter number = tiny_metadata(spec);
  number.add("glm-dsa.attention.indexer.types", std::uint32_t{1});
  expect_refused(read(number), ErrorCode::kInvalidFile, "no list");
}

TEST(SparseSpec, IndexerTensorsBelongToLayersThatHaveOne) {
  ModelSpec spec = tiny_sparse_spec("glm-dsa");
  spec.indexer.layers = {true, false};
  const auto model = TinyModel::make(spec, TensorType::kF16);
  ASSERT_TRUE(model) << model.error().message;
  int found = 0;
  for (const BoundTensor& tensor : (*model)->tensors) {
    if (tensor.decl.name.find("indexer.") == std::string::npos) continue;
    ++found;
    EXPECT_TRUE(tensor.decl.name.starts_with("blk.0.")) << tensor.decl.name;
    EXPECT_TRUE(tensor.decl.split.mirrored) << tensor.decl.name;
  }
  EXPECT_EQ(found, 5);
}

TEST(DeepseekSpec, QueriesScaledByPositionAreRefused) {
  GgufWriter scaled = tiny_metadata(tiny_deepseek_spec());
  scaled.add("deepseek2.attention.temperature_scale", 0.1F);
  expect_refused(read(scaled), ErrorCode::kUnsupported, "attention.temperature_scale");
  GgufWriter length = tiny_metadata(tiny_deepseek_spec());
  length.add("deepseek2.attention.temperature_length", std::uint32_t{8192});
  expect_refused(read(length), ErrorCode::kUnsupported, "temperature_length");
  GgufWriter off = tiny_metadata(tiny_deepseek_spec());
  off.add("deepseek2.attention.temperature_scale", 0.0F);
  EXPECT_TRUE(read(off));
}

// As llama.cpp does for files from before the key.
TEST(DeepseekSpec, MissingGatingMeansSigmoidForGlmFlashAndSoftmaxForDeepseek) {
  using Gating = ExpertSpec::Gating;
  const auto gating = [](int layers, std::uint64_t vocabulary, int predicted, int key) {
    ModelSpec spec = tiny_deepseek_spec();
    spec.layers = layers + predicted;
    GgufWriter writer = tiny_metadata(spec);
    if (predicted > 0) writer.add("deepseek2.nextn_predict_layers", std::uint32_t{1});
    if (key > 0) writer.add("deepseek2.expert_gating_func", static_cast<std::uint32_t>(key));
    const auto read_back = read(writer, vocabulary);
    EXPECT_TRUE(read_back) << read_back.error().message;
    return read_back->experts.gating;
  };
  EXPECT_EQ(gating(47, 154880, 0, 0), Gating::kSigmoid);
  EXPECT_EQ(gating(47, 154880, 1, 0), Gating::kSigmoid);
  EXPECT_EQ(gating(48, 154880, 0, 0), Gating::kSigmoid);
  EXPECT_EQ(gating(47, 154880, 0, 1), Gating::kSoftmax);
  EXPECT_EQ(gating(47, 102400, 0, 0), Gating::kSoftmax);
  EXPECT_EQ(gating(46, 154880, 0, 0), Gating::kSoftmax);
  EXPECT_EQ(gating(60, 102400, 0, 2), Gating::kSigmoid);
}

}  // namespace
}  // namespace sinew
