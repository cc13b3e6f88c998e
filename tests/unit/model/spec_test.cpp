#include "model/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/tiny_model.h"

namespace sinew {
namespace {

using test::Bytes;
using test::GgufWriter;
using ::testing::HasSubstr;

using Keys = std::map<std::string, std::uint32_t>;  // without the architecture in front

const Keys kLlama{
    {"block_count", 2},           {"embedding_length", 64},       {"context_length", 128},
    {"attention.head_count", 8},  {"attention.head_count_kv", 4}, {"feed_forward_length", 256},
    {"attention.key_length", 32}, {"attention.value_length", 16}, {"rope.dimension_count", 32}};
const Keys kDeepseek{{"block_count", 3},
                     {"embedding_length", 64},
                     {"context_length", 128},
                     {"attention.head_count", 8},
                     {"feed_forward_length", 256},
                     {"rope.dimension_count", 16},
                     {"attention.q_lora_rank", 64},
                     {"attention.kv_lora_rank", 32},
                     {"attention.key_length_mla", 48},
                     {"attention.value_length_mla", 32},
                     {"expert_count", 8},
                     {"expert_used_count", 2},
                     {"expert_feed_forward_length", 128},
                     {"expert_shared_count", 2},
                     {"leading_dense_block_count", 1},
                     {"expert_group_count", 4},
                     {"expert_group_used_count", 2},
                     {"expert_gating_func", 2}};

Keys with(Keys keys, const std::string& key, std::uint32_t value) {
  keys[key] = value;
  return keys;
}
Keys without(Keys keys, const std::string& key) {
  keys.erase(key);
  return keys;
}

GgufWriter writer_of(const std::string& architecture, const Keys& keys) {
  GgufWriter writer;
  writer.add("general.architecture", architecture);
  for (const auto& [key, value] : keys) writer.add(architecture + "." + key, value);
  writer.tensor("token_embd.weight", TensorType::kF16, {64, 96});
  // As many tensors as a file with these layers has at least.
  for (const char* name : {"blk.0.a", "blk.1.a", "blk.2.a"})
    writer.tensor(name, TensorType::kF32, {1});
  return writer;
}

Result<ModelSpec> read(const GgufWriter& writer) {
  const Bytes file = writer.bytes();
  const GgufPart part{"models/tiny.gguf", file};
  SINEW_ASSIGN(const GgufModel model, GgufModel::parse(std::span(&part, 1)));
  return read_spec(model);
}
Result<ModelSpec> read_llama(const Keys& keys) {
  return read(writer_of("llama", keys));
}
Result<ModelSpec> read_deepseek(const Keys& keys) {
  return read(writer_of("deepseek2", keys));
}

void expect_refused(const Result<ModelSpec>& result, ErrorCode code, const char* cause) {
  ASSERT_FALSE(result) << cause;
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(cause));
  EXPECT_THAT(result.error().message, HasSubstr("models/tiny.gguf"));
}

TEST(ReadSpec, LlamaIsReadFromItsKeys) {
  const auto spec = read_llama(kLlama);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->family, Family::kLlama);
  EXPECT_EQ(spec->name, "tiny.gguf");
  EXPECT_EQ(spec->layers, 2);
  EXPECT_EQ(spec->embedding, 64);
  EXPECT_EQ(spec->vocabulary, 96);
  EXPECT_EQ(spec->context_trained, 128);
  EXPECT_EQ(spec->heads, 8);
  EXPECT_EQ(spec->kv_heads, 4);
  EXPECT_EQ(spec->key_dimensions, 32);
  EXPECT_EQ(spec->value_dimensions, 16);
  EXPECT_EQ(spec->feed_forward, 256);
  EXPECT_EQ(spec->rope.dimensions, 32);
  EXPECT_FLOAT_EQ(spec->attention_scale, 1.0F / std::sqrt(32.0F));
  EXPECT_TRUE(spec->tied_output);
  EXPECT_EQ(spec->experts.count, 0);
  EXPECT_TRUE(spec->dense(1));
}

TEST(ReadSpec, DeepseekIsReadFromItsKeys) {
  const auto spec = read_deepseek(kDeepseek);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->family, Family::kDeepseek2);
  EXPECT_EQ(spec->heads, 8);
  EXPECT_EQ(spec->kv_heads, 8);
  EXPECT_EQ(spec->latent.query_rank, 64);
  EXPECT_EQ(spec->latent.kv_rank, 32);
  EXPECT_EQ(spec->latent.nope_dimensions, 32);
  EXPECT_EQ(spec->value_dimensions, 32);
  EXPECT_EQ(spec->experts.count, 8);
  EXPECT_EQ(spec->experts.used, 2);
  EXPECT_EQ(spec->experts.columns, 128);
  EXPECT_EQ(spec->experts.shared, 2);
  EXPECT_EQ(spec->experts.groups, 4);
  EXPECT_EQ(spec->experts.groups_used, 2);
  EXPECT_EQ(spec->experts.gating, ExpertSpec::Gating::kSigmoid);
  EXPECT_TRUE(spec->dense(0));
  EXPECT_FALSE(spec->dense(1));
}

TEST(ReadSpec, MissingKeysHaveTheFormatsDefaults) {
  Keys keys = kLlama;
  for (const char* key : {"attention.head_count_kv", "attention.key_length",
                          "attention.value_length", "rope.dimension_count"})
    keys.erase(key);
  const auto spec = read_llama(keys);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->kv_heads, spec->heads);
  EXPECT_EQ(spec->key_dimensions, 8);
  EXPECT_EQ(spec->value_dimensions, 8);
  EXPECT_EQ(spec->rope.dimensions, 8);
  EXPECT_FLOAT_EQ(spec->rope.base, 10000.0F);
  EXPECT_FLOAT_EQ(spec->rms_epsilon, 1e-5F);
}

TEST(ReadSpec, CachedElementsAreThoseOfTheHeadsOrOneLatentRow) {
  EXPECT_EQ(read_llama(kLlama)->cached_keys(3), 3 * 32);
  EXPECT_EQ(read_llama(kLlama)->cached_values(3), 3 * 16);
  for (const int heads : {1, 5}) {
    EXPECT_EQ(read_deepseek(kDeepseek)->cached_keys(heads), 32 + 16);
    EXPECT_EQ(read_deepseek(kDeepseek)->cached_values(heads), 0);
  }
  EXPECT_EQ(read_deepseek(kDeepseek)->cached_keys(0), 0);
}

TEST(ReadSpec, MissingRequiredKeyIsNamed) {
  for (const char* key : {"block_count", "embedding_length", "context_length",
                          "attention.head_count", "feed_forward_length"}) {
    expect_refused(read_llama(without(kLlama, key)), ErrorCode::kInvalidFile, key);
    expect_refused(read_deepseek(without(kDeepseek, key)), ErrorCode::kInvalidFile, key);
  }
  for (const char* key :
       {"attention.kv_lora_rank", "expert_used_count", "expert_feed_forward_length"})
    expect_refused(read_deepseek(without(kDeepseek, key)), ErrorCode::kInvalidFile, key);
}

// A reader that goes on after an error must not divide by what it did not read.
TEST(ReadSpec, HeadsThatAreMissingOrNoNumberAreAnErrorWithoutADivision) {
  const Keys keys = without(without(kLlama, "attention.head_count"), "attention.head_count_kv");
  expect_refused(read_llama(keys), ErrorCode::kInvalidFile, "attention.head_count");
  GgufWriter writer = writer_of("llama", keys);
  writer.add("llama.attention.head_count", std::vector<std::uint32_t>{8, 8});
  expect_refused(read(writer), ErrorCode::kInvalidFile, "attention.head_count");
}

TEST(ReadSpec, NoValueOfAnyKeyCrashes) {
  const std::vector<std::uint32_t> values{0, 1, 2, 3, 5, 255, 1u << 20, (1u << 20) + 1, 0xFFFFFFFF};
  for (const bool deepseek : {false, true}) {
    const Keys& keys = deepseek ? kDeepseek : kLlama;
    const std::string architecture = deepseek ? "deepseek2" : "llama";
    for (const auto& [key, unused] : keys) {
      for (const std::uint32_t value : values) {
        const auto spec = read(writer_of(architecture, with(keys, key, value)));
        if (spec) continue;
        EXPECT_TRUE(spec.error().code == ErrorCode::kInvalidFile ||
                    spec.error().code == ErrorCode::kUnsupported)
            << key << " = " << value << ": " << spec.error().message;
      }
      GgufWriter text = writer_of(architecture, without(keys, key));
      text.add(architecture + "." + key, "eight");
      expect_refused(read(text), ErrorCode::kInvalidFile, key.c_str());
    }
  }
}

TEST(ReadSpec, UnknownArchitectureListsThoseThatRun) {
  const auto spec = read(writer_of("mamba", kLlama));
  expect_refused(spec, ErrorCode::kUnsupported, "mamba");
  EXPECT_THAT(spec.error().message, HasSubstr("llama, qwen2"));
}

TEST(ReadSpec, FileWithoutEmbeddingIsNoLanguageModel) {
  GgufWriter writer;
  writer.add("general.architecture", "llama").tensor("v.weight", TensorType::kF32, {1});
  expect_refused(read(writer), ErrorCode::kInvalidFile, "token_embd.weight");
}

TEST(ReadSpec, MoreLayersThanTensorsAreRefusedBeforeTheirTableIsMade) {
  expect_refused(read_llama(with(kLlama, "block_count", 1u << 20)), ErrorCode::kInvalidFile,
                 "block_count");
}

TEST(ReadSpec, ContradictionsAreInvalid) {
  const auto llama = [](const char* key, std::uint32_t value, const char* cause) {
    expect_refused(read_llama(with(kLlama, key, value)), ErrorCode::kInvalidFile, cause);
  };
  llama("attention.head_count", 7, "no multiple");
  llama("attention.head_count", 0, "attention.head_count");
  llama("rope.dimension_count", 31, "odd");
  llama("rope.dimension_count", 34, "larger than a head");
  llama("nextn_predict_layers", 2, "leaves no layers");
  llama("context_length", 0, "context_length");
  const auto deepseek = [](const char* key, std::uint32_t value, const char* cause) {
    expect_refused(read_deepseek(with(kDeepseek, key, value)), ErrorCode::kInvalidFile, cause);
  };
  deepseek("expert_used_count", 9, "more than expert_count");
  deepseek("leading_dense_block_count", 4, "more than block_count");
  deepseek("expert_group_count", 3, "does not fit");
  deepseek("expert_group_used_count", 5, "does not fit");
  deepseek("expert_used_count", 5, "fewer experts");
  deepseek("attention.key_length_mla", 16, "not larger than rope.dimension_count");
}

TEST(ReadSpec, WhatIsNotImplementedIsUnsupported) {
  expect_refused(read_deepseek(with(kDeepseek, "expert_gating_func", 4)), ErrorCode::kUnsupported,
                 "gating function 4");
  GgufWriter scaled = writer_of("llama", kLlama);
  scaled.add("llama.rope.scaling.type", "longrope");
  expect_refused(read(scaled), ErrorCode::kUnsupported, "longrope");
}

TEST(ReadSpec, EveryArchitectureReadsWhatItsFilesSay) {
  for (const ModelSpec& spec : test::tiny_specs()) {
    SCOPED_TRACE(spec.architecture);
    const auto model = test::TinyModel::make(spec, TensorType::kF16);
    ASSERT_TRUE(model) << model.error().message;
    const ModelSpec& read = (*model)->spec;
    EXPECT_EQ(read.family, spec.family);
    EXPECT_EQ(read.layers, spec.layers);
    EXPECT_EQ(read.kv_heads, spec.kv_heads);
    EXPECT_EQ(read.key_dimensions, spec.key_dimensions);
    EXPECT_EQ(read.experts.count, spec.experts.count);
    EXPECT_EQ(read.experts.dense_layers, spec.experts.dense_layers);
    EXPECT_EQ(read.window.layers, spec.window.layers);
    EXPECT_EQ(read.latent.expanded, spec.latent.expanded);
  }
}

// A family must not run on a guess of what its file leaves out.
TEST(ReadSpec, KeysThatAFamilyCannotDoWithoutAreNamed) {
  const auto missing = [](const ModelSpec& spec, const std::string& key) {
    GgufWriter all = test::tiny_metadata(spec);
    all.tensor("token_embd.weight", TensorType::kF16, {64, 96});
    for (int i = 0; i < 8; ++i) all.tensor(fmt::format("x{}", i), TensorType::kF16, {1});
    expect_refused(read(all), ErrorCode::kInvalidFile, key.c_str());
  };
  for (ModelSpec spec : test::tiny_specs()) {
    if (spec.family == Family::kGlm4Moe || spec.family == Family::kMiniMax ||
        spec.family == Family::kGptOss || spec.architecture == "qwen3moe") {
      spec.experts.count = 0;
      missing(spec, "expert_count");
    } else if (spec.family == Family::kGemma3) {
      spec.feed_forward = 0;
      missing(spec, "feed_forward_length");
    }
  }
  ModelSpec gpt = test::tiny_grouped_spec("gpt-oss", Family::kGptOss, 4);
  missing(gpt, "attention.sliding_window");
}

TEST(ReadSpec, WindowedLayersAreThoseOfThePatternOrThoseListed) {
  ModelSpec spec = test::tiny_grouped_spec("gemma3", Family::kGemma3, 0);
  spec.layers = 7;
  const auto windowed = [&](GgufWriter writer) {
    writer.tensor("token_embd.weight", TensorType::kF16, {64, 96});
    for (int i = 0; i < 8; ++i) writer.tensor(fmt::format("x{}", i), TensorType::kF16, {1});
    return read(writer);
  };
  GgufWriter pattern = test::tiny_metadata(spec);
  pattern.add("gemma3.attention.sliding_window", std::uint32_t{16});
  const auto by_pattern = windowed(pattern);
  ASSERT_TRUE(by_pattern) << by_pattern.error().message;
  EXPECT_THAT(by_pattern->window.layers,
              testing::ElementsAre(true, true, true, true, true, false, true));
  EXPECT_FLOAT_EQ(by_pattern->rope_of(0).base, 10000.0F);

  GgufWriter listed = pattern;
  listed.add("gemma3.attention.sliding_window_pattern",
             std::vector<std::uint32_t>{0, 1, 0, 1, 0, 0, 1});
  const auto by_list = windowed(listed);
  ASSERT_TRUE(by_list) << by_list.error().message;
  EXPECT_THAT(by_list->window.layers,
              testing::ElementsAre(false, true, false, true, false, false, true));

  GgufWriter brief = pattern;
  brief.add("gemma3.attention.sliding_window_pattern", std::vector<std::uint32_t>{0, 1});
  expect_refused(windowed(brief), ErrorCode::kInvalidFile, "sliding_window_pattern");
}

TEST(ReadSpec, PredictLayersAreNotCounted) {
  const auto spec = read_deepseek(with(kDeepseek, "nextn_predict_layers", 1));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers, 2);
}

TEST(ReadSpec, LinearScalingDividesPositions) {
  GgufWriter writer = writer_of("llama", kLlama);
  writer.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 4.0F);
  const auto spec = read(writer);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_FLOAT_EQ(spec->rope.scale, 0.25F);
  EXPECT_EQ(spec->rope.extrapolation, 0.0F);
}

// DeepSeek-V3's modeling: softmax scale x (1 + 0.1 ln factor)^2, sine and cosine unscaled.
TEST(ReadSpec, DeepseekYarnScalesAttentionAlone) {
  GgufWriter writer = writer_of("deepseek2", kDeepseek);
  writer.add("deepseek2.rope.scaling.type", "yarn").add("deepseek2.rope.scaling.factor", 40.0F);
  writer.add("deepseek2.rope.scaling.yarn_log_multiplier", 0.1F);
  const auto spec = read(writer);
  ASSERT_TRUE(spec) << spec.error().message;
  const double mscale = 1.0 + 0.1 * std::log(40.0);
  EXPECT_EQ(spec->rope.extrapolation, 1.0F);
  EXPECT_NEAR(spec->attention_scale, mscale * mscale / std::sqrt(48.0), 1e-6);
  EXPECT_NEAR(spec->rope.attention_factor * mscale, 1.0, 1e-6);
}

}  // namespace
}  // namespace sinew
