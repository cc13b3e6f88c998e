#include "latent_attention.h"

namespace sinew::generate {
namespace {

void add_attention_metadata(const LatentShape& shape, FamilyKeys& keys) {
  const std::uint32_t key = shape.nope + shape.rope;
  if (shape.query_rank_key) keys.add("attention.q_lora_rank", shape.query_rank);
  keys.add("attention.kv_lora_rank", shape.kv_rank);
  if (shape.layout == LatentLayout::kTogether) {
    keys.add("attention.head_count_kv", shape.heads)
        .add("attention.key_length", key)
        .add("attention.value_length", shape.value);
    return;
  }
  keys.add("attention.head_count_kv", std::uint32_t{1})
      .add("attention.key_length", shape.kv_rank + shape.rope)
      .add("attention.value_length", shape.kv_rank)
      .add("attention.key_length_mla", key)
      .add("attention.value_length_mla", shape.value);
}

void add_rope_metadata(const LatentShape& shape, FamilyKeys& keys) {
  keys.add("rope.dimension_count", shape.rope).add("rope.freq_base", shape.rope_base);
  if (shape.yarn_factor == 0.0F) return;
  keys.add("rope.scaling.type", "yarn")
      .add("rope.scaling.factor", shape.yarn_factor)
      .add("rope.scaling.original_context_length", std::uint32_t{4096})
      .add("rope.scaling.yarn_log_multiplier", shape.yarn_log_multiplier);
}

void add_expert_metadata(const LatentShape& shape, std::uint32_t experts, FamilyKeys& keys) {
  keys.add("leading_dense_block_count", shape.dense_layers)
      .add("expert_feed_forward_length", shape.expert_columns)
      .add("expert_count", experts)
      .add("expert_used_count", shape.used)
      .add("expert_shared_count", shape.shared)
      .add("expert_weights_scale", shape.expert_scale);
  if (shape.weights_norm) keys.add("expert_weights_norm", true);
  if (shape.gating != 0) keys.add("expert_gating_func", shape.gating);
  if (shape.groups > 0)
    keys.add("expert_group_count", shape.groups).add("expert_group_used_count", shape.groups_used);
}

void add_metadata(const LatentShape& shape, const Options& options, std::uint32_t experts,
                  std::uint32_t vocabulary, test::GgufWriter& header) {
  FamilyKeys keys(header, shape.architecture, shape.name);
  keys.add("context_length", options.context.value_or(shape.context))
      .add("embedding_length", shape.hidden)
      .add("block_count", shape.layers_in_file(options))
      .add("feed_forward_length", shape.feed_forward)
      .add("vocab_size", vocabulary)
      .add("attention.head_count", shape.heads)
      .add("attention.layer_norm_rms_epsilon", 1e-6F);
  if (options.prediction_layer) keys.add("nextn_predict_layers", std::uint32_t{1});
  add_attention_metadata(shape, keys);
  add_expert_metadata(shape, experts, keys);
  add_rope_metadata(shape, keys);
  if (shape.index_heads > 0)
    keys.add("attention.indexer.head_count", shape.index_heads)
        .add("attention.indexer.key_length", shape.index_head)
        .add("attention.indexer.top_k", shape.index_top);
  if (!shape.index_layers.empty()) keys.add("attention.indexer.types", shape.index_layers);
}

void add_queries(Weights& weights, const std::string& block, const LatentShape& shape,
                 Types::Choice type) {
  const std::uint32_t width = shape.heads * (shape.nope + shape.rope);
  if (shape.query_rank == 0) {
    weights.matrix(block + "attn_q.weight", {shape.hidden, width}, type,
                   kQueryGain * fan_in(shape.hidden));
    return;
  }
  weights.matrix(block + "attn_q_a.weight", {shape.hidden, shape.query_rank}, type,
                 fan_in(shape.hidden));
  weights.norm(block + "attn_q_a_norm.weight", shape.query_rank);
  weights.matrix(block + "attn_q_b.weight", {shape.query_rank, width}, type,
                 kQueryGain * fan_in(shape.query_rank));
}

void add_latent_attention(Weights& weights, const std::string& block, const LatentShape& shape,
                          Types::Choice type) {
  const std::uint32_t latent = shape.kv_rank;
  weights.norm(block + "attn_norm.weight", shape.hidden);
  add_queries(weights, block, shape, type);
  weights.matrix(block + "attn_kv_a_mqa.weight", {shape.hidden, latent + shape.rope}, type,
                 fan_in(shape.hidden));
  weights.norm(block + "attn_kv_a_norm.weight", latent);
  if (shape.layout == LatentLayout::kTogether) {
    weights.matrix(block + "attn_kv_b.weight", {latent, shape.heads * (shape.nope + shape.value)},
                   type, fan_in(latent));
  } else {
    weights.matrix(block + "attn_k_b.weight", {shape.nope, latent, shape.heads}, type,
                   fan_in(latent));
    weights.matrix(block + "attn_v_b.weight", {latent, shape.value, shape.heads}, type,
                   fan_in(latent));
  }
  weights.matrix(block + "attn_output.weight", {shape.heads * shape.value, shape.hidden}, type,
                 fan_in(shape.heads * shape.value));
}

// The scores by which earlier positions are selected. The projection to one weight a head stays in
// float32, as converters keep it.
void add_indexer(Weights& weights, const std::string& block, const LatentShape& shape,
                 Types::Choice type) {
  weights.norm(block + "indexer.k_norm.weight", shape.index_head);
  weights.floats(block + "indexer.k_norm.bias", {shape.index_head}, kBiasDeviation);
  weights.floats(block + "indexer.proj.weight", {shape.hidden, shape.index_heads},
                 fan_in(shape.hidden));
  weights.matrix(block + "indexer.attn_k.weight", {shape.hidden, shape.index_head}, type,
                 fan_in(shape.hidden));
  weights.matrix(block + "indexer.attn_q_b.weight",
                 {shape.query_rank, shape.index_heads * shape.index_head}, type,
                 fan_in(shape.query_rank));
}

void add_feed_forward_part(Weights& weights, const std::string& block, const LatentShape& shape,
                           bool dense, std::uint32_t experts, const Types& types) {
  weights.norm(block + "ffn_norm.weight", shape.hidden);
  if (dense) {
    add_feed_forward(weights, block, "", shape.hidden, shape.feed_forward, types.feed_forward);
    return;
  }
  add_experts(weights, block,
              {.hidden = shape.hidden,
               .columns = shape.expert_columns,
               .count = experts,
               .selection_bias = shape.selection_bias},
              types);
  add_feed_forward(weights, block, "_shexp", shape.hidden, shape.shared * shape.expert_columns,
                   types.feed_forward);
}

}  // namespace

Result<Recipe> make_latent(const LatentShape& shape, const Types& usual, const Options& options) {
  SINEW_TRY(check_options(options, {.experts = true, .prediction_layer = shape.query_rank > 0}));
  SINEW_ASSIGN(const std::uint32_t experts,
               expert_count(options, shape.experts, shape.used, std::max(1u, shape.groups)));
  const Types types = chosen(options, usual);
  Recipe recipe;
  SINEW_ASSIGN(const std::uint32_t vocabulary,
               add_vocabulary(options, shape.pre, shape.vocabulary, recipe.header));
  add_metadata(shape, options, experts, vocabulary, recipe.header);
  Weights weights(recipe);
  add_ends(weights, shape.hidden, vocabulary, false, types.vocabulary);
  for (std::uint32_t layer = 0; layer < shape.layers_in_file(options); ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    add_latent_attention(weights, block, shape, types.attention);
    if (shape.index_heads > 0 && (layer >= shape.index_layers.size() || shape.index_layers[layer]))
      add_indexer(weights, block, shape, types.attention);
    add_feed_forward_part(weights, block, shape, layer < shape.dense_layers, experts, types);
    if (layer >= shape.layers) add_next_token_parts(weights, block, shape.hidden, types.attention);
  }
  return recipe;
}

}  // namespace sinew::generate
