#include "model/families.h"

namespace sinew {
namespace {

// GLM 4.7 Flash was published before its files named the gating function: llama.cpp tells it from
// DeepSeek V2 by these numbers, and reads other files without the key as V2's softmax.
constexpr int kFlashVocabulary = 154880;
bool is_glm_flash(const ModelSpec& spec) {
  return (spec.layers == 47 || spec.layers == 48) && spec.vocabulary == kFlashVocabulary;
}

}  // namespace

void read_latent_attention(SpecReader& reader, ModelSpec& spec) {
  spec.heads = reader.dimension("attention.head_count");
  spec.kv_heads = spec.heads;
  spec.latent.query_rank = reader.dimension_or("attention.q_lora_rank", 0);
  spec.latent.kv_rank = reader.dimension("attention.kv_lora_rank");
  // Files of the older layout have one projection from the latent to keys and values, and say what
  // a head's own dimensions are where newer ones say what is cached.
  spec.latent.expanded = !reader.has("attention.key_length_mla");
  const char* suffix = spec.latent.expanded ? "" : "_mla";
  spec.key_dimensions = reader.dimension(fmt::format("attention.key_length{}", suffix));
  spec.value_dimensions = reader.dimension(fmt::format("attention.value_length{}", suffix));
  spec.rope = read_rope(reader, spec.context_trained, 64);
  spec.latent.nope_dimensions = spec.key_dimensions - spec.rope.dimensions;
  if (spec.latent.nope_dimensions <= 0)
    reader.reject(fmt::format("attention.key_length{}", suffix),
                  "is not larger than rope.dimension_count");
  if (reader.real_or("attention.temperature_scale", 0.0) != 0 ||
      reader.integer_or("attention.temperature_length", 0) != 0)
    reader.unsupported(
        "attention.temperature_scale or temperature_length is set: queries scaled by their "
        "position (Mistral Large 3) are not implemented");

  // YaRN's attention scale (DeepSeek-V3 modeling: softmax_scale x mscale^2, mscale = 1 + 0.1 m ln
  // factor). The file stores m x 0.1. ggml scales sine and cosine by 1 + 0.1 ln factor on its own,
  // and DeepSeek wants them unscaled: the inverse goes into attention_factor.
  const float log_factor = std::log(1.0F / spec.rope.scale);
  const float multiplier = reader.real_or("rope.scaling.yarn_log_multiplier", 0.0) / 0.1F;
  float mscale = 1.0F + 0.1F * multiplier * log_factor;
  if (spec.rope.extrapolation != 0) {
    const float own = 1.0F + 0.1F * log_factor;
    if (multiplier != 0) spec.rope.attention_factor /= own;
    mscale *= spec.rope.attention_factor * own;
  } else {
    mscale *= spec.rope.attention_factor * (1.0F + 0.1F * log_factor);
  }
  spec.attention_scale = mscale * mscale / std::sqrt(static_cast<float>(spec.key_dimensions));
}

// DeepSeek V2, V3, R1, V3.1, Moonlight, Kimi K2 and GLM 4.7 Flash: multi-head latent attention and
// a mixture of experts. The low-rank projections are small and mirrored; what belongs to a head is
// split by heads, experts by their columns.
void read_deepseek2(SpecReader& reader, ModelSpec& spec) {
  read_latent_attention(reader, spec);
  spec.feed_forward = reader.dimension("feed_forward_length");
  const auto gating =
      is_glm_flash(spec) ? ExpertSpec::Gating::kSigmoid : ExpertSpec::Gating::kSoftmax;
  spec.experts = read_experts(reader, spec, {.gating = gating});
}

void declare_latent_attention(const ModelSpec& spec, TensorTable& table) {
  const LatentSpec& latent = spec.latent;
  const std::int64_t nope = latent.nope_dimensions;
  const std::int64_t value = spec.value_dimensions;
  const std::int64_t query_columns = std::int64_t{spec.heads} * spec.key_dimensions;
  table.vector("attn_norm.weight", spec.embedding);
  if (latent.query_rank > 0) {
    table.mirrored("attn_q_a.weight", spec.embedding, latent.query_rank);
    table.vector("attn_q_a_norm.weight", latent.query_rank);
    table.by_outputs("attn_q_b.weight", latent.query_rank, query_columns, Dimension::kHeads,
                     spec.key_dimensions);
  } else {
    table.by_outputs("attn_q.weight", spec.embedding, query_columns, Dimension::kHeads,
                     spec.key_dimensions);
  }
  table.mirrored("attn_kv_a_mqa.weight", spec.embedding, latent.kv_rank + spec.rope.dimensions);
  table.vector("attn_kv_a_norm.weight", latent.kv_rank);
  if (latent.expanded) {
    table.by_outputs("attn_kv_b.weight", latent.kv_rank, spec.heads * (nope + value),
                     Dimension::kHeads, nope + value);
  } else {
    table.by_head("attn_k_b.weight", nope, latent.kv_rank);
    table.by_head("attn_v_b.weight", latent.kv_rank, value);
  }
  table.by_inputs("attn_output.weight", spec.heads * value, spec.embedding, Dimension::kHeads,
                  value);
}

void declare_deepseek2(const ModelSpec& spec, TensorTable& table) {
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_latent_attention(spec, table);
    table.vector("ffn_norm.weight", spec.embedding);
    if (spec.dense(layer))
      table.feed_forward("", spec.feed_forward, Dimension::kFeedForward);
    else
      declare_experts(spec, {.choice_bias = Need::kOptional}, table);
  }
}

}  // namespace sinew
