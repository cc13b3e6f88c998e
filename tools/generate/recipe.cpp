#include "recipe.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "vocabulary.h"

// Deviations: a matrix of n inputs is drawn with 1/sqrt(n), which keeps activations near 1. Queries
// are drawn twice as wide, so that attention prefers some positions and a wrong position shows; the
// output layer three times, so that the logits' spread (about 3) makes greedy choices clear.
namespace sinew::generate {
namespace {

constexpr float kQueryGain = 2.0F;
constexpr float kOutputGain = 3.0F;
constexpr float kNormDeviation = 0.1F;
constexpr float kRouterBiasDeviation = 0.1F;
constexpr std::uint32_t kSigmoidGating = 2;  // of llama.cpp's expert_gating_func

struct Types {
  TensorType attention;
  TensorType feed_forward;
  TensorType vocabulary;
};

struct LlamaShape {
  std::string_view name;
  std::uint32_t context, hidden, layers, heads, kv_heads, head, feed_forward, vocabulary;
  float rope_base;
  bool rope_factors;
};

struct DeepseekShape {
  std::string_view name, pre;
  std::uint32_t context, hidden, layers, heads, query_rank, kv_rank, nope, rope, value;
  std::uint32_t feed_forward, expert_columns, dense_layers, experts, used, groups, groups_used;
  std::uint32_t vocabulary;
  float rope_base, yarn_factor, expert_scale;
};

// Heads, columns and experts of the tiny kinds are chosen so that blocks of 256 elements can still
// be cut into three or four shares.
constexpr LlamaShape kTinyLlama{.name = "tiny-llama-random",
                                .context = 4096,
                                .hidden = 256,
                                .layers = 3,
                                .heads = 16,
                                .kv_heads = 4,
                                .head = 64,
                                .feed_forward = 1024,
                                .vocabulary = 320,
                                .rope_base = 10000.0F,
                                .rope_factors = false};
constexpr LlamaShape kTinyLlama3{.name = "tiny-llama3-random",
                                 .context = 16384,
                                 .hidden = 256,
                                 .layers = 3,
                                 .heads = 12,
                                 .kv_heads = 3,
                                 .head = 64,
                                 .feed_forward = 1280,
                                 .vocabulary = 320,
                                 .rope_base = 500000.0F,
                                 .rope_factors = true};
constexpr LlamaShape kDense15{.name = "dense-1.5b-random",
                              .context = 8192,
                              .hidden = 2048,
                              .layers = 32,
                              .heads = 32,
                              .kv_heads = 8,
                              .head = 64,
                              .feed_forward = 5632,
                              .vocabulary = 32000,
                              .rope_base = 500000.0F,
                              .rope_factors = false};
constexpr DeepseekShape kTinyDeepseek{.name = "tiny-deepseek-random",
                                      .pre = "deepseek-v3",
                                      .context = 16384,
                                      .hidden = 256,
                                      .layers = 3,
                                      .heads = 16,
                                      .query_rank = 256,
                                      .kv_rank = 256,
                                      .nope = 64,
                                      .rope = 32,
                                      .value = 64,
                                      .feed_forward = 1536,
                                      .expert_columns = 1024,
                                      .dense_layers = 1,
                                      .experts = 8,
                                      .used = 3,
                                      .groups = 4,
                                      .groups_used = 2,
                                      .vocabulary = 320,
                                      .rope_base = 10000.0F,
                                      .yarn_factor = 4.0F,
                                      .expert_scale = 2.5F};
constexpr DeepseekShape kTinyKimi{.name = "tiny-kimi-random",
                                  .pre = "kimi-k2",
                                  .context = 131072,
                                  .hidden = 256,
                                  .layers = 3,
                                  .heads = 8,
                                  .query_rank = 256,
                                  .kv_rank = 256,
                                  .nope = 64,
                                  .rope = 32,
                                  .value = 128,
                                  .feed_forward = 1024,
                                  .expert_columns = 512,
                                  .dense_layers = 1,
                                  .experts = 16,
                                  .used = 4,
                                  .groups = 1,
                                  .groups_used = 1,
                                  .vocabulary = 320,
                                  .rope_base = 50000.0F,
                                  .yarn_factor = 32.0F,
                                  .expert_scale = 2.827F};
// Kimi K2's shapes, with 5 of 61 layers, 40 of 384 experts and an eighth of the vocabulary.
constexpr DeepseekShape kK2Cut{.name = "k2-cut-random",
                               .pre = "deepseek-v3",
                               .context = 131072,
                               .hidden = 7168,
                               .layers = 5,
                               .heads = 64,
                               .query_rank = 1536,
                               .kv_rank = 512,
                               .nope = 128,
                               .rope = 64,
                               .value = 128,
                               .feed_forward = 18432,
                               .expert_columns = 2048,
                               .dense_layers = 1,
                               .experts = 40,
                               .used = 8,
                               .groups = 1,
                               .groups_used = 1,
                               .vocabulary = 20480,
                               .rope_base = 10000.0F,
                               .yarn_factor = 32.0F,
                               .expert_scale = 2.5F};

float fan_in(std::uint32_t inputs) {
  return 1.0F / std::sqrt(static_cast<float>(inputs));
}

// Collects the tensors of a model.
class Weights {
 public:
  explicit Weights(Recipe& recipe) : recipe_(recipe) {}

  void norm(std::string name, std::uint32_t size) {
    recipe_.weights.push_back(
        {std::move(name), {size}, TensorType::kF32, Draw::kNearOne, kNormDeviation});
  }
  void floats(std::string name, std::vector<std::uint64_t> shape, float deviation,
              Draw draw = Draw::kNormal) {
    recipe_.weights.push_back(
        {std::move(name), std::move(shape), TensorType::kF32, draw, deviation});
  }
  void matrix(std::string name, std::vector<std::uint64_t> shape, TensorType type,
              float deviation) {
    const TensorType stored = fitting(name, shape.front(), type);
    recipe_.weights.push_back(
        {std::move(name), std::move(shape), stored, Draw::kNormal, deviation});
  }

 private:
  // Rows shorter than a block of `type` are stored as Q8_0 or F16, as llama.cpp's quantiser does in
  // such a case; the user is told.
  TensorType fitting(const std::string& name, std::uint64_t row, TensorType type) {
    const auto fits = [row](TensorType candidate) {
      return row % tensor_type_traits(candidate)->block_length == 0;
    };
    if (fits(type)) return type;
    const TensorType stored = fits(TensorType::kQ8_0) ? TensorType::kQ8_0 : TensorType::kF16;
    recipe_.notes.push_back(
        fmt::format("{} is stored as {}: its rows of {} elements are no "
                    "multiple of a block of {}",
                    name, tensor_type_traits(stored)->name, row, tensor_type_traits(type)->name));
    return stored;
  }

  Recipe& recipe_;
};

Result<std::uint32_t> add_vocabulary(const Options& options, std::string_view pre,
                                     std::uint32_t size, test::GgufWriter& header) {
  if (options.vocabulary != nullptr) return copy_vocabulary(*options.vocabulary, header);
  write_vocabulary(pre, size, header);
  return size;
}

void add_ends(Weights& weights, std::uint32_t hidden, std::uint32_t vocabulary, bool tied,
              TensorType type) {
  weights.matrix("token_embd.weight", {hidden, vocabulary}, type,
                 tied ? kOutputGain * fan_in(hidden) : 1.0F);
  weights.norm("output_norm.weight", hidden);
  if (!tied)
    weights.matrix("output.weight", {hidden, vocabulary}, type, kOutputGain * fan_in(hidden));
}

// `suffix`: "" for a dense layer, "_shexp" for the shared expert.
void add_feed_forward(Weights& weights, const std::string& block, std::string_view suffix,
                      std::uint32_t hidden, std::uint32_t columns, TensorType type) {
  const auto name = [&](std::string_view part) {
    return fmt::format("{}ffn_{}{}.weight", block, part, suffix);
  };
  weights.matrix(name("gate"), {hidden, columns}, type, fan_in(hidden));
  weights.matrix(name("up"), {hidden, columns}, type, fan_in(hidden));
  weights.matrix(name("down"), {columns, hidden}, type, fan_in(columns));
}

void add_llama_metadata(const LlamaShape& shape, const Options& options, std::uint32_t vocabulary,
                        test::GgufWriter& header) {
  header.add("general.architecture", "llama")
      .add("general.name", std::string(shape.name))
      .add("llama.context_length", options.context.value_or(shape.context))
      .add("llama.embedding_length", shape.hidden)
      .add("llama.block_count", shape.layers)
      .add("llama.feed_forward_length", shape.feed_forward)
      .add("llama.attention.head_count", shape.heads)
      .add("llama.attention.head_count_kv", shape.kv_heads)
      .add("llama.attention.key_length", shape.head)
      .add("llama.attention.value_length", shape.head)
      .add("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .add("llama.rope.dimension_count", shape.head)
      .add("llama.rope.freq_base", shape.rope_base)
      .add("llama.vocab_size", vocabulary);
}

Result<Recipe> make_llama(const LlamaShape& shape, const Types& types, const Options& options) {
  if (options.experts)
    return fail(ErrorCode::kUsage, "--experts: this kind has none; leave the option out");
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, "llama-bpe", shape.vocabulary, recipe.header));
  add_llama_metadata(shape, options, vocabulary, recipe.header);
  Weights weights(recipe);
  const std::uint32_t queries = shape.heads * shape.head;
  const std::uint32_t keys = shape.kv_heads * shape.head;
  add_ends(weights, shape.hidden, vocabulary, options.tied, types.vocabulary);
  if (shape.rope_factors)
    weights.floats("rope_freqs.weight", {shape.head / 2}, 0.0F, Draw::kRopeFactors);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    const float in = fan_in(shape.hidden);
    weights.norm(block + "attn_norm.weight", shape.hidden);
    weights.matrix(block + "attn_q.weight", {shape.hidden, queries}, types.attention,
                   kQueryGain * in);
    weights.matrix(block + "attn_k.weight", {shape.hidden, keys}, types.attention, in);
    weights.matrix(block + "attn_v.weight", {shape.hidden, keys}, types.attention, in);
    weights.matrix(block + "attn_output.weight", {queries, shape.hidden}, types.attention,
                   fan_in(queries));
    weights.norm(block + "ffn_norm.weight", shape.hidden);
    add_feed_forward(weights, block, "", shape.hidden, shape.feed_forward, types.feed_forward);
  }
  return recipe;
}

void add_deepseek_metadata(const DeepseekShape& shape, const Options& options,
                           std::uint32_t vocabulary, test::GgufWriter& header) {
  const std::uint32_t latent = shape.kv_rank;
  header.add("general.architecture", "deepseek2")
      .add("general.name", std::string(shape.name))
      .add("deepseek2.context_length", options.context.value_or(shape.context))
      .add("deepseek2.embedding_length", shape.hidden)
      .add("deepseek2.block_count", shape.layers)
      .add("deepseek2.feed_forward_length", shape.feed_forward)
      .add("deepseek2.vocab_size", vocabulary)
      .add("deepseek2.attention.head_count", shape.heads)
      .add("deepseek2.attention.head_count_kv", std::uint32_t{1})
      .add("deepseek2.attention.layer_norm_rms_epsilon", 1e-6F)
      .add("deepseek2.attention.q_lora_rank", shape.query_rank)
      .add("deepseek2.attention.kv_lora_rank", latent)
      .add("deepseek2.attention.key_length", latent + shape.rope)
      .add("deepseek2.attention.value_length", latent)
      .add("deepseek2.attention.key_length_mla", shape.nope + shape.rope)
      .add("deepseek2.attention.value_length_mla", shape.value)
      .add("deepseek2.leading_dense_block_count", shape.dense_layers)
      .add("deepseek2.expert_feed_forward_length", shape.expert_columns)
      .add("deepseek2.expert_count", options.experts.value_or(shape.experts))
      .add("deepseek2.expert_used_count", shape.used)
      .add("deepseek2.expert_shared_count", std::uint32_t{1})
      .add("deepseek2.expert_weights_scale", shape.expert_scale)
      .add("deepseek2.expert_weights_norm", true)
      .add("deepseek2.expert_gating_func", kSigmoidGating)
      .add("deepseek2.rope.dimension_count", shape.rope)
      .add("deepseek2.rope.freq_base", shape.rope_base)
      .add("deepseek2.rope.scaling.type", "yarn")
      .add("deepseek2.rope.scaling.factor", shape.yarn_factor)
      .add("deepseek2.rope.scaling.original_context_length", std::uint32_t{4096})
      .add("deepseek2.rope.scaling.yarn_log_multiplier", 0.1F);
  if (shape.groups > 1)
    header.add("deepseek2.expert_group_count", shape.groups)
        .add("deepseek2.expert_group_used_count", shape.groups_used);
}

void add_latent_attention(Weights& weights, const std::string& block, const DeepseekShape& shape,
                          TensorType type) {
  const std::uint32_t latent = shape.kv_rank;
  const std::uint32_t hidden = shape.hidden;
  weights.norm(block + "attn_norm.weight", hidden);
  weights.matrix(block + "attn_q_a.weight", {hidden, shape.query_rank}, type, fan_in(hidden));
  weights.norm(block + "attn_q_a_norm.weight", shape.query_rank);
  weights.matrix(block + "attn_q_b.weight",
                 {shape.query_rank, shape.heads * (shape.nope + shape.rope)}, type,
                 kQueryGain * fan_in(shape.query_rank));
  weights.matrix(block + "attn_kv_a_mqa.weight", {hidden, latent + shape.rope}, type,
                 fan_in(hidden));
  weights.norm(block + "attn_kv_a_norm.weight", latent);
  weights.matrix(block + "attn_k_b.weight", {shape.nope, latent, shape.heads}, type,
                 fan_in(latent));
  weights.matrix(block + "attn_v_b.weight", {latent, shape.value, shape.heads}, type,
                 fan_in(latent));
  weights.matrix(block + "attn_output.weight", {shape.heads * shape.value, hidden}, type,
                 fan_in(shape.heads * shape.value));
}

void add_experts(Weights& weights, const std::string& block, const DeepseekShape& shape,
                 std::uint32_t experts, TensorType type) {
  const std::uint32_t hidden = shape.hidden;
  const std::uint32_t columns = shape.expert_columns;
  weights.floats(block + "ffn_gate_inp.weight", {hidden, experts}, fan_in(hidden));
  weights.floats(block + "exp_probs_b.bias", {experts}, kRouterBiasDeviation);
  weights.matrix(block + "ffn_gate_exps.weight", {hidden, columns, experts}, type, fan_in(hidden));
  weights.matrix(block + "ffn_up_exps.weight", {hidden, columns, experts}, type, fan_in(hidden));
  weights.matrix(block + "ffn_down_exps.weight", {columns, hidden, experts}, type, fan_in(columns));
  add_feed_forward(weights, block, "_shexp", hidden, columns, type);
}

Status check_experts(const DeepseekShape& shape, std::uint32_t experts) {
  constexpr std::uint32_t kExpertsMax = 1024;
  const std::uint32_t fewest = shape.groups > 1 ? 2 * shape.groups : shape.used;
  if (experts < fewest || experts > kExpertsMax || experts % shape.groups != 0)
    return fail(ErrorCode::kUsage, "--experts {}: choose a multiple of {} from {} to {}", experts,
                shape.groups, fewest, kExpertsMax);
  return {};
}

Result<Recipe> make_deepseek(const DeepseekShape& shape, const Types& types,
                             const Options& options) {
  const std::uint32_t experts = options.experts.value_or(shape.experts);
  SINEW_TRY(check_experts(shape, experts));
  if (options.tied)
    return fail(ErrorCode::kUsage, "--tied is for the llama kinds only; leave the option out");
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, shape.pre, shape.vocabulary, recipe.header));
  add_deepseek_metadata(shape, options, vocabulary, recipe.header);
  Weights weights(recipe);
  add_ends(weights, shape.hidden, vocabulary, false, types.vocabulary);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    add_latent_attention(weights, block, shape, types.attention);
    weights.norm(block + "ffn_norm.weight", shape.hidden);
    if (layer < shape.dense_layers) {
      add_feed_forward(weights, block, "", shape.hidden, shape.feed_forward, types.feed_forward);
    } else {
      add_experts(weights, block, shape, experts, types.feed_forward);
    }
  }
  return recipe;
}

Types chosen(const Options& options, const Types& usual) {
  Types types = usual;
  if (options.type) types = {*options.type, *options.type, *options.type};
  if (options.attention_type) types.attention = *options.attention_type;
  if (options.expert_type) types.feed_forward = *options.expert_type;
  return types;
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list{
      {"tiny-llama", "Llama: grouped queries, 4 key-value heads; --tied for a tied output layer"},
      {"tiny-llama3", "Llama 3.1: 3 key-value heads, frequency factors"},
      {"tiny-ds", "DeepSeek V3: latent attention, 8 experts in 4 groups, a shared one, YaRN"},
      {"tiny-kimi", "Kimi K2: latent attention, 16 experts without groups, a shared one, YaRN"},
      {"dense15", "Llama of 1.5 billion parameters in Q4_0, about 0.9 GB"},
      {"k2cut", "Kimi K2's shapes, 5 layers of 40 experts in Q4_K, about 5 GB"},
  };
  return list;
}

Result<Recipe> make_recipe(std::string_view kind, const Options& options) {
  constexpr Types kHalf{TensorType::kF16, TensorType::kF16, TensorType::kF16};
  constexpr Types kSmall{TensorType::kQ4_0, TensorType::kQ4_0, TensorType::kQ4_0};
  constexpr Types kMixed{TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ4_0};
  if (kind == "tiny-llama") return make_llama(kTinyLlama, chosen(options, kHalf), options);
  if (kind == "tiny-llama3") return make_llama(kTinyLlama3, chosen(options, kHalf), options);
  if (kind == "tiny-ds") return make_deepseek(kTinyDeepseek, chosen(options, kHalf), options);
  if (kind == "tiny-kimi") return make_deepseek(kTinyKimi, chosen(options, kHalf), options);
  if (kind == "dense15") return make_llama(kDense15, chosen(options, kSmall), options);
  if (kind == "k2cut") return make_deepseek(kK2Cut, chosen(options, kMixed), options);
  return fail(ErrorCode::kUsage, "'{}' is no kind of model; --list shows those that are", kind);
}

}  // namespace sinew::generate
