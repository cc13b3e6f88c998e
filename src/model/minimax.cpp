#include "model/families.h"

namespace sinew {

// MiniMax-M2: one norm over the queries of all heads and one over the keys, only part of a head
// rotated, experts in every layer.
void read_minimax(SpecReader& reader, ModelSpec& spec) {
  read_grouped_attention(reader, spec);
  spec.rope.neox = true;
  spec.experts = read_experts(reader, spec, {ExpertSpec::Gating::kSigmoid, true});
  if (spec.experts.count == 0) reader.reject("expert_count", "is missing or 0");
}

void declare_minimax(const ModelSpec& spec, TensorTable& table) {
  const std::int64_t per_group = spec.heads / spec.kv_heads;
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_grouped_attention(spec, {}, table);
    table.split_vector("attn_q_norm.weight", std::int64_t{spec.heads} * spec.key_dimensions,
                       Dimension::kHeads, per_group * spec.key_dimensions);
    table.split_vector("attn_k_norm.weight", std::int64_t{spec.kv_heads} * spec.key_dimensions,
                       Dimension::kHeads, spec.key_dimensions);
    table.vector("ffn_norm.weight", spec.embedding);
    declare_experts(spec, {.choice_bias = Need::kRequired}, table);
  }
}

}  // namespace sinew
