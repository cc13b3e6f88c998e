#include <array>

#include "weights.h"

namespace sinew::generate {
namespace {

struct Shape {
  std::string_view name, pre;
  std::uint32_t context, hidden, layers, heads, kv_heads, head, feed_forward, vocabulary;
  std::uint32_t experts, used;
  float rope_base;
  bool rope_factors;
};

// Heads, columns and experts of the tiny kinds are chosen so that blocks of 256 elements can still
// be cut into three or four shares: the queries of one key-value head are 256 wide.
constexpr Shape kTinyLlama{.name = "tiny-llama-random",
                           .pre = "llama-bpe",
                           .context = 16384,
                           .hidden = 256,
                           .layers = 3,
                           .heads = 16,
                           .kv_heads = 4,
                           .head = 64,
                           .feed_forward = 1024,
                           .vocabulary = 320,
                           .experts = 0,
                           .used = 0,
                           .rope_base = 10000.0F,
                           .rope_factors = false};
// Without grouped queries, and with the older, SentencePiece-style vocabulary.
constexpr Shape kTinyLlama2{.name = "tiny-llama2-random",
                            .pre = kSentencePieces,
                            .context = 16384,
                            .hidden = 256,
                            .layers = 3,
                            .heads = 16,
                            .kv_heads = 16,
                            .head = 64,
                            .feed_forward = 1024,
                            .vocabulary = 448,
                            .experts = 0,
                            .used = 0,
                            .rope_base = 10000.0F,
                            .rope_factors = false};
constexpr Shape kTinyLlama3{.name = "tiny-llama3-random",
                            .pre = "llama-bpe",
                            .context = 16384,
                            .hidden = 256,
                            .layers = 3,
                            .heads = 12,
                            .kv_heads = 3,
                            .head = 64,
                            .feed_forward = 1280,
                            .vocabulary = 320,
                            .experts = 0,
                            .used = 0,
                            .rope_base = 500000.0F,
                            .rope_factors = true};
constexpr Shape kTinyMixtral{.name = "tiny-mixtral-random",
                             .pre = kSentencePieces,
                             .context = 32768,
                             .hidden = 256,
                             .layers = 3,
                             .heads = 16,
                             .kv_heads = 4,
                             .head = 64,
                             .feed_forward = 768,
                             .vocabulary = 448,
                             .experts = 8,
                             .used = 2,
                             .rope_base = 1000000.0F,
                             .rope_factors = false};
constexpr Shape kDense15{.name = "dense-1.5b-random",
                         .pre = "llama-bpe",
                         .context = 8192,
                         .hidden = 2048,
                         .layers = 32,
                         .heads = 32,
                         .kv_heads = 8,
                         .head = 64,
                         .feed_forward = 5632,
                         .vocabulary = 32000,
                         .experts = 0,
                         .used = 0,
                         .rope_base = 500000.0F,
                         .rope_factors = false};

void add_metadata(const Shape& shape, const Options& options, std::uint32_t experts,
                  std::uint32_t vocabulary, test::GgufWriter& header) {
  FamilyKeys keys(header, "llama", shape.name);
  keys.add("context_length", options.context.value_or(shape.context))
      .add("embedding_length", shape.hidden)
      .add("block_count", shape.layers)
      .add("feed_forward_length", shape.feed_forward)
      .add("attention.head_count", shape.heads)
      .add("attention.head_count_kv", shape.kv_heads)
      .add("attention.key_length", shape.head)
      .add("attention.value_length", shape.head)
      .add("attention.layer_norm_rms_epsilon", 1e-5F)
      .add("rope.dimension_count", shape.head)
      .add("rope.freq_base", shape.rope_base)
      .add("vocab_size", vocabulary);
  if (experts > 0) keys.add("expert_count", experts).add("expert_used_count", shape.used);
}

Result<Recipe> make(const Shape& shape, TensorType usual, const Options& options) {
  SINEW_TRY(check_options(options, {.experts = shape.experts > 0, .tied = true}));
  std::uint32_t experts = 0;
  if (shape.experts > 0) {
    SINEW_ASSIGN(experts, expert_count(options, shape.experts, shape.used));
  }
  const Types types = chosen(options, Types::all(usual));
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, shape.pre, shape.vocabulary, recipe.header));
  add_metadata(shape, options, experts, vocabulary, recipe.header);
  Weights weights(recipe);
  add_ends(weights, shape.hidden, vocabulary, options.tied, types.vocabulary);
  if (shape.rope_factors)
    weights.floats("rope_freqs.weight", {shape.head / 2}, 0.0F, Draw::kRopeFactors);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    add_grouped_attention(weights, block,
                          {.hidden = shape.hidden,
                           .heads = shape.heads,
                           .kv_heads = shape.kv_heads,
                           .head = shape.head},
                          types.attention);
    weights.norm(block + "ffn_norm.weight", shape.hidden);
    if (experts == 0) {
      add_feed_forward(weights, block, "", shape.hidden, shape.feed_forward, types.feed_forward);
    } else {
      add_experts(weights, block,
                  {.hidden = shape.hidden, .columns = shape.feed_forward, .count = experts}, types);
    }
  }
  return recipe;
}

}  // namespace

std::vector<Kind> llama_kinds() {
  return {
      {"tiny-llama", "Llama: grouped queries, 4 key-value heads; --tied for a tied output layer",
       [](const Options& options) { return make(kTinyLlama, TensorType::kF16, options); }},
      {"tiny-llama2", "Llama 2: as many key-value heads as heads, SentencePiece vocabulary",
       [](const Options& options) { return make(kTinyLlama2, TensorType::kF16, options); }},
      {"tiny-llama3", "Llama 3.1: 3 key-value heads, frequency factors",
       [](const Options& options) { return make(kTinyLlama3, TensorType::kF16, options); }},
      {"tiny-mixtral", "Mixtral: Llama with 8 experts in place of the feed-forward layer, 2 used",
       [](const Options& options) { return make(kTinyMixtral, TensorType::kF16, options); }},
      {"dense15", "Llama of 1.5 billion parameters in Q4_0, about 0.9 GB",
       [](const Options& options) { return make(kDense15, TensorType::kQ4_0, options); }},
  };
}

}  // namespace sinew::generate
