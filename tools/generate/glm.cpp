#include "weights.h"

namespace sinew::generate {
namespace {

constexpr std::uint32_t kHidden = 256;
constexpr std::uint32_t kLayers = 3;
constexpr std::uint32_t kDenseLayers = 1;
constexpr std::uint32_t kHeads = 16;
constexpr std::uint32_t kKeyValueHeads = 4;
constexpr std::uint32_t kHead = 64;
constexpr std::uint32_t kFeedForward = 1024;
constexpr std::uint32_t kExpertColumns = 768;
constexpr std::uint32_t kExperts = 8;
constexpr std::uint32_t kUsed = 3;

void add_metadata(const Options& options, std::uint32_t experts, test::GgufWriter& header) {
  const std::uint32_t predicting = options.prediction_layer ? 1 : 0;
  FamilyKeys keys(header, "glm4moe", "tiny-glm4moe-random");
  keys.add("context_length", options.context.value_or(131072))
      .add("embedding_length", kHidden)
      .add("block_count", kLayers + predicting)
      .add("feed_forward_length", kFeedForward)
      .add("attention.head_count", kHeads)
      .add("attention.head_count_kv", kKeyValueHeads)
      .add("attention.key_length", kHead)
      .add("attention.value_length", kHead)
      .add("attention.layer_norm_rms_epsilon", 1e-5F)
      .add("rope.dimension_count", kHead / 2)
      .add("rope.freq_base", 1000000.0F)
      .add("leading_dense_block_count", kDenseLayers)
      .add("expert_count", experts)
      .add("expert_used_count", kUsed)
      .add("expert_group_count", std::uint32_t{1})
      .add("expert_group_used_count", std::uint32_t{1})
      .add("expert_feed_forward_length", kExpertColumns)
      .add("expert_shared_count", std::uint32_t{1})
      .add("expert_gating_func", kSigmoidGating)
      .add("expert_weights_scale", 2.5F)
      .add("expert_weights_norm", true);
  if (predicting > 0) keys.add("nextn_predict_layers", predicting);
}

// GLM 4.5; the smaller one (Air) has no norms of queries and keys, the larger one has.
Result<Recipe> make(const Options& options) {
  SINEW_TRY(check_options(
      options, {.experts = true, .tied = true, .prediction_layer = true, .head_norms = true}));
  SINEW_ASSIGN(const std::uint32_t experts, expert_count(options, kExperts, kUsed));
  const Types types = chosen(options, Types::all(TensorType::kF16));
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary, add_vocabulary(options, "glm4", 320, recipe.header));
  add_metadata(options, experts, recipe.header);
  Weights weights(recipe);
  add_ends(weights, kHidden, vocabulary, options.tied, types.vocabulary);
  const std::uint32_t all_layers = kLayers + (options.prediction_layer ? 1 : 0);
  for (std::uint32_t layer = 0; layer < all_layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    add_grouped_attention(weights, block,
                          {.hidden = kHidden,
                           .heads = kHeads,
                           .kv_heads = kKeyValueHeads,
                           .head = kHead,
                           .norm = options.head_norms ? HeadNorm::kEachHead : HeadNorm::kNone,
                           .biases = true},
                          types.attention);
    weights.norm(block + "post_attention_norm.weight", kHidden);
    if (layer < kDenseLayers) {
      add_feed_forward(weights, block, "", kHidden, kFeedForward, types.feed_forward);
    } else {
      add_experts(
          weights, block,
          {.hidden = kHidden, .columns = kExpertColumns, .count = experts, .selection_bias = true},
          types);
      add_feed_forward(weights, block, "_shexp", kHidden, kExpertColumns, types.feed_forward);
    }
    if (layer >= kLayers) add_next_token_parts(weights, block, kHidden, types.attention);
  }
  return recipe;
}

}  // namespace

std::vector<Kind> glm_kinds() {
  return {{"tiny-glm4moe",
           "GLM 4.5: half of each head rotates, biases, 8 experts, a shared one; --qk-norm, --mtp",
           make}};
}

}  // namespace sinew::generate
