#include "weights.h"

namespace sinew::generate {
namespace {

struct Shape {
  std::string_view architecture, name;
  std::uint32_t context, hidden, layers, heads, kv_heads, head, feed_forward, vocabulary;
  std::uint32_t expert_columns, experts, used;
};

// Qwen2 has no key for the width of a head: it is the hidden width divided by the heads.
constexpr Shape kTinyQwen2{.architecture = "qwen2",
                           .name = "tiny-qwen2-random",
                           .context = 32768,
                           .hidden = 1024,
                           .layers = 2,
                           .heads = 16,
                           .kv_heads = 4,
                           .head = 64,
                           .feed_forward = 1024,
                           .vocabulary = 320,
                           .expert_columns = 0,
                           .experts = 0,
                           .used = 0};
constexpr Shape kTinyQwen3{.architecture = "qwen3",
                           .name = "tiny-qwen3-random",
                           .context = 40960,
                           .hidden = 256,
                           .layers = 3,
                           .heads = 16,
                           .kv_heads = 4,
                           .head = 64,
                           .feed_forward = 1024,
                           .vocabulary = 320,
                           .expert_columns = 0,
                           .experts = 0,
                           .used = 0};
constexpr Shape kTinyQwen3Moe{.architecture = "qwen3moe",
                              .name = "tiny-qwen3moe-random",
                              .context = 40960,
                              .hidden = 256,
                              .layers = 2,
                              .heads = 16,
                              .kv_heads = 4,
                              .head = 64,
                              .feed_forward = 1536,
                              .vocabulary = 320,
                              .expert_columns = 1024,
                              .experts = 8,
                              .used = 3};
// Qwen3-30B-A3B's shapes, with 6 of 48 layers and a fifth of the vocabulary.
constexpr Shape kQwen3MoeCut{.architecture = "qwen3moe",
                             .name = "qwen3moe-cut-random",
                             .context = 40960,
                             .hidden = 2048,
                             .layers = 6,
                             .heads = 32,
                             .kv_heads = 4,
                             .head = 128,
                             .feed_forward = 6144,
                             .vocabulary = 30336,
                             .expert_columns = 768,
                             .experts = 128,
                             .used = 8};

void add_metadata(const Shape& shape, const Options& options, std::uint32_t experts,
                  test::GgufWriter& header) {
  FamilyKeys keys(header, shape.architecture, shape.name);
  keys.add("context_length", options.context.value_or(shape.context))
      .add("embedding_length", shape.hidden)
      .add("block_count", shape.layers)
      .add("feed_forward_length", shape.feed_forward)
      .add("attention.head_count", shape.heads)
      .add("attention.head_count_kv", shape.kv_heads)
      .add("attention.layer_norm_rms_epsilon", 1e-6F)
      .add("rope.freq_base", 1000000.0F);
  if (shape.architecture != "qwen2")
    keys.add("attention.key_length", shape.head).add("attention.value_length", shape.head);
  // No key says that the weights of the selected experts are made to sum to 1: in this family they
  // always are.
  if (experts > 0)
    keys.add("expert_count", experts)
        .add("expert_used_count", shape.used)
        .add("expert_feed_forward_length", shape.expert_columns);
}

Result<Recipe> make(const Shape& shape, const Types& usual, const Options& options) {
  SINEW_TRY(check_options(options, {.experts = shape.experts > 0, .tied = true}));
  std::uint32_t experts = 0;
  if (shape.experts > 0) {
    SINEW_ASSIGN(experts, expert_count(options, shape.experts, shape.used));
  }
  const bool second = shape.architecture == "qwen2";
  const Types types = chosen(options, usual);
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, "qwen2", shape.vocabulary, recipe.header));
  add_metadata(shape, options, experts, recipe.header);
  Weights weights(recipe);
  add_ends(weights, shape.hidden, vocabulary, options.tied, types.vocabulary);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    add_grouped_attention(weights, block,
                          {.hidden = shape.hidden,
                           .heads = shape.heads,
                           .kv_heads = shape.kv_heads,
                           .head = shape.head,
                           .norm = second ? HeadNorm::kNone : HeadNorm::kEachHead,
                           .biases = second},
                          types.attention);
    weights.norm(block + "ffn_norm.weight", shape.hidden);
    if (experts == 0) {
      add_feed_forward(weights, block, "", shape.hidden, shape.feed_forward, types.feed_forward);
    } else {
      add_experts(weights, block,
                  {.hidden = shape.hidden, .columns = shape.expert_columns, .count = experts},
                  types);
    }
  }
  return recipe;
}

}  // namespace

std::vector<Kind> qwen_kinds() {
  return {
      {"tiny-qwen2", "Qwen2: biases of queries, keys and values; --tied as the small ones are",
       [](const Options& options) {
         return make(kTinyQwen2, Types::all(TensorType::kF16), options);
       }},
      {"tiny-qwen3", "Qwen3: norms of each query's and key's head; --tied as the small ones are",
       [](const Options& options) {
         return make(kTinyQwen3, Types::all(TensorType::kF16), options);
       }},
      {"tiny-qwen3moe", "Qwen3 with 8 experts, 3 used",
       [](const Options& options) {
         return make(kTinyQwen3Moe, Types::all(TensorType::kF16), options);
       }},
      {"qwen3moecut", "Qwen3-30B-A3B's shapes, 6 layers in Q4_K and Q6_K, about 2.4 GB",
       [](const Options& options) {
         // As the usual Q4_K_M file: half of the down matrices and the output in Q6_K; here all.
         Types usual = Types::all(TensorType::kQ4_K);
         usual.experts_down = usual.vocabulary = TensorType::kQ6_K;
         return make(kQwen3MoeCut, usual, options);
       }},
  };
}

}  // namespace sinew::generate
