#include "weights.h"

namespace sinew::generate {
namespace {

// Seven layers: five with a window, one without, and one with a window again.
constexpr std::uint32_t kHidden = 256;
constexpr std::uint32_t kLayers = 7;
constexpr std::uint32_t kHeads = 8;
constexpr std::uint32_t kKeyValueHeads = 4;
constexpr std::uint32_t kHead = 128;
constexpr std::uint32_t kFeedForward = 1024;
constexpr std::uint32_t kWindow = 512;

// The embedding is also the output layer, and enters multiplied by the root of the hidden width. A
// token would therefore mostly predict itself; this mean of the norms behind each layer makes what
// the layers add outweigh it.
constexpr float kPostNormMean = 4.0F;

void add_metadata(const Options& options, test::GgufWriter& header) {
  FamilyKeys(header, "gemma3", "tiny-gemma3-random")
      .add("context_length", options.context.value_or(32768))
      .add("embedding_length", kHidden)
      .add("block_count", kLayers)
      .add("feed_forward_length", kFeedForward)
      .add("attention.head_count", kHeads)
      .add("attention.head_count_kv", kKeyValueHeads)
      .add("attention.key_length", kHead)
      .add("attention.value_length", kHead)
      .add("attention.layer_norm_rms_epsilon", 1e-6F)
      .add("attention.sliding_window", kWindow)  // of five layers in six; no key says which
      .add("rope.freq_base", 1000000.0F)
      .add("rope.freq_base_swa", 10000.0F);
}

Result<Recipe> make(const Options& options) {
  // Always tied; that it is asked for changes nothing.
  SINEW_TRY(check_options(options, {.tied = true}));
  const Types types = chosen(options, Types::all(TensorType::kF16));
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, kGemmaPieces, 448, recipe.header));
  add_metadata(options, recipe.header);
  Weights weights(recipe);
  add_ends(weights, kHidden, vocabulary, true, types.vocabulary);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    add_grouped_attention(weights, block,
                          {.hidden = kHidden,
                           .heads = kHeads,
                           .kv_heads = kKeyValueHeads,
                           .head = kHead,
                           .norm = HeadNorm::kEachHead},
                          types.attention);
    weights.norm(block + "post_attention_norm.weight", kHidden, kPostNormMean);
    weights.norm(block + "ffn_norm.weight", kHidden);
    add_feed_forward(weights, block, "", kHidden, kFeedForward, types.feed_forward);
    weights.norm(block + "post_ffw_norm.weight", kHidden, kPostNormMean);
  }
  return recipe;
}

}  // namespace

std::vector<Kind> gemma_kinds() {
  return {{"tiny-gemma3",
           "Gemma 3: a window in five layers of six, norms behind each layer, tied output", make}};
}

}  // namespace sinew::generate
