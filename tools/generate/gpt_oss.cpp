#include <cmath>

#include "weights.h"

namespace sinew::generate {
namespace {

// As in the published models, the widths are multiples of 32, MXFP4's block, but not of 256, and
// the experts' columns make an odd number of blocks.
constexpr std::uint32_t kHidden = 288;
constexpr std::uint32_t kLayers = 4;
constexpr std::uint32_t kHeads = 16;
constexpr std::uint32_t kKeyValueHeads = 4;
constexpr std::uint32_t kHead = 64;
constexpr std::uint32_t kExpertColumns = 480;
constexpr std::uint32_t kExperts = 8;
constexpr std::uint32_t kUsed = 4;
constexpr std::uint32_t kWindow = 128;

// llama.cpp rounds the pairs between which YaRN's ramp runs outwards to whole ones, and the model's
// authors do not. These borders are just inside whole ones, so that both compute the same.
constexpr float kRopeBase = 150000.0F;
constexpr std::uint32_t kContext = 4096;
constexpr double kRampBegin = 8 + 1e-5;
constexpr double kRampEnd = 18 - 1e-5;

// Turns, within the original context, of a pair of rotated elements: where YaRN has a border.
float turns_of(double pair) {
  return static_cast<float>(kContext /
                            (2 * std::acos(-1.0) * std::pow(double{kRopeBase}, 2 * pair / kHead)));
}

void add_metadata(const Options& options, std::uint32_t experts, test::GgufWriter& header) {
  FamilyKeys(header, "gpt-oss", "tiny-gpt-oss-random")
      .add("context_length", options.context.value_or(131072))
      .add("embedding_length", kHidden)
      .add("block_count", kLayers)
      .add("feed_forward_length", kExpertColumns)
      .add("expert_feed_forward_length", kExpertColumns)
      .add("expert_count", experts)
      .add("expert_used_count", kUsed)
      .add("attention.head_count", kHeads)
      .add("attention.head_count_kv", kKeyValueHeads)
      .add("attention.key_length", kHead)
      .add("attention.value_length", kHead)
      .add("attention.layer_norm_rms_epsilon", 1e-5F)
      .add("attention.sliding_window", kWindow)  // of every other layer, the first one included
      .add("rope.freq_base", kRopeBase)
      .add("rope.scaling.type", "yarn")
      .add("rope.scaling.factor", 32.0F)
      .add("rope.scaling.original_context_length", kContext)
      .add("rope.scaling.yarn_beta_fast", turns_of(kRampBegin))
      .add("rope.scaling.yarn_beta_slow", turns_of(kRampEnd));
}

void add_layer(Weights& weights, const std::string& block, std::uint32_t experts,
               const Types& types) {
  add_grouped_attention(weights, block,
                        {.hidden = kHidden,
                         .heads = kHeads,
                         .kv_heads = kKeyValueHeads,
                         .head = kHead,
                         .biases = true},
                        types.attention);
  weights.floats(block + "attn_output.bias", {kHidden}, kBiasDeviation);
  // Against the exponentials of a window's scores, smaller ones would hardly show.
  weights.floats(block + "attn_sinks.weight", {kHeads}, 2.0F, Draw::kNormal, 5.0F);
  weights.norm(block + "post_attention_norm.weight", kHidden);
  add_experts(weights, block, {.hidden = kHidden, .columns = kExpertColumns, .count = experts},
              types);
  weights.floats(block + "ffn_gate_inp.bias", {experts}, kRouterBiasDeviation);
  weights.floats(block + "ffn_gate_exps.bias", {kExpertColumns, experts}, kBiasDeviation);
  weights.floats(block + "ffn_up_exps.bias", {kExpertColumns, experts}, kBiasDeviation);
  weights.floats(block + "ffn_down_exps.bias", {kHidden, experts}, kBiasDeviation);
}

Result<Recipe> make(const Options& options) {
  SINEW_TRY(check_options(options, {.experts = true}));
  SINEW_ASSIGN(const std::uint32_t experts, expert_count(options, kExperts, kUsed));
  Types types = chosen(options, Types::all(TensorType::kF16));
  // As in published files, whatever the rest is.
  if (!options.expert_type) types.experts = types.experts_down = TensorType::kMXFP4;
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, "gpt-4o", 320, recipe.header));
  add_metadata(options, experts, recipe.header);
  Weights weights(recipe);
  add_ends(weights, kHidden, vocabulary, false, types.vocabulary);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer)
    add_layer(weights, fmt::format("blk.{}.", layer), experts, types);
  return recipe;
}

}  // namespace

std::vector<Kind> gpt_oss_kinds() {
  return {{"tiny-gptoss",
           "gpt-oss: sinks, a window in every other layer, biases, YaRN, 8 experts in MXFP4 unless "
           "--expert-type is given",
           make}};
}

}  // namespace sinew::generate
