#include "weights.h"

namespace sinew::generate {
namespace {

constexpr std::uint32_t kHidden = 256;
constexpr std::uint32_t kLayers = 2;
constexpr std::uint32_t kHeads = 8;
constexpr std::uint32_t kKeyValueHeads = 4;
constexpr std::uint32_t kHead = 128;
constexpr std::uint32_t kExpertColumns = 768;
constexpr std::uint32_t kExperts = 12;
constexpr std::uint32_t kUsed = 4;

void add_metadata(const Options& options, std::uint32_t experts, test::GgufWriter& header) {
  FamilyKeys(header, "minimax-m2", "tiny-minimax-m2-random")
      .add("context_length", options.context.value_or(196608))
      .add("embedding_length", kHidden)
      .add("block_count", kLayers)
      .add("feed_forward_length", kExpertColumns)
      .add("expert_feed_forward_length", kExpertColumns)
      .add("expert_count", experts)
      .add("expert_used_count", kUsed)
      .add("expert_gating_func", kSigmoidGating)
      .add("attention.head_count", kHeads)
      .add("attention.head_count_kv", kKeyValueHeads)
      .add("attention.key_length", kHead)
      .add("attention.value_length", kHead)
      .add("attention.layer_norm_rms_epsilon", 1e-6F)
      .add("rope.dimension_count", kHead / 2)
      .add("rope.freq_base", 5000000.0F);
}

Result<Recipe> make(const Options& options) {
  SINEW_TRY(check_options(options, {.experts = true}));
  SINEW_ASSIGN(const std::uint32_t experts, expert_count(options, kExperts, kUsed));
  const Types types = chosen(options, Types::all(TensorType::kF16));
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, "minimax-m2", 320, recipe.header));
  add_metadata(options, experts, recipe.header);
  Weights weights(recipe);
  add_ends(weights, kHidden, vocabulary, false, types.vocabulary);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    add_grouped_attention(weights, block,
                          {.hidden = kHidden,
                           .heads = kHeads,
                           .kv_heads = kKeyValueHeads,
                           .head = kHead,
                           .norm = HeadNorm::kAllHeads},
                          types.attention);
    weights.norm(block + "ffn_norm.weight", kHidden);
    add_experts(
        weights, block,
        {.hidden = kHidden, .columns = kExpertColumns, .count = experts, .selection_bias = true},
        types);
  }
  return recipe;
}

}  // namespace

std::vector<Kind> minimax_kinds() {
  return {{"tiny-minimax",
           "MiniMax M2: norms over all heads at once, half of each head rotates, 12 experts",
           make}};
}

}  // namespace sinew::generate
