#include "model/families.h"

namespace sinew {

// DeepSeek V3, R1, V3.1 and Kimi K2: multi-head latent attention and a mixture of experts. The
// low-rank projections are small and mirrored; what belongs to a head is split by heads, experts by
// their columns.
std::vector<TensorDecl> declare_deepseek2(const ModelSpec& spec) {
  const LatentSpec& latent = spec.latent;
  const ExpertSpec& experts = spec.experts;
  const std::int64_t embedding = spec.embedding;
  const std::int64_t query_columns = std::int64_t{spec.heads} * spec.key_dimensions;
  const std::int64_t value_columns = std::int64_t{spec.heads} * spec.value_dimensions;

  std::vector<TensorDecl> table;
  declare_ends(spec, table);
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    table.push_back(float_vector(blk + "attn_norm.weight", embedding));
    if (latent.query_rank > 0) {
      table.push_back(mirrored(blk + "attn_q_a.weight", {embedding, latent.query_rank, 1, 1}));
      table.push_back(float_vector(blk + "attn_q_a_norm.weight", latent.query_rank));
      table.push_back(split(blk + "attn_q_b.weight", {latent.query_rank, query_columns, 1, 1},
                            Dimension::kHeads, 1, spec.key_dimensions));
    } else {
      table.push_back(split(blk + "attn_q.weight", {embedding, query_columns, 1, 1},
                            Dimension::kHeads, 1, spec.key_dimensions));
    }
    table.push_back(mirrored(blk + "attn_kv_a_mqa.weight",
                             {embedding, latent.kv_rank + spec.rope.dimensions, 1, 1}));
    table.push_back(float_vector(blk + "attn_kv_a_norm.weight", latent.kv_rank));
    table.push_back(used_as(
        TensorUse::kOther,
        split(blk + "attn_k_b.weight", {latent.nope_dimensions, latent.kv_rank, spec.heads, 1},
              Dimension::kHeads, 2)));
    table.push_back(used_as(
        TensorUse::kOther,
        split(blk + "attn_v_b.weight", {latent.kv_rank, latent.value_dimensions, spec.heads, 1},
              Dimension::kHeads, 2)));
    table.push_back(split(blk + "attn_output.weight", {value_columns, embedding, 1, 1},
                          Dimension::kHeads, 0, spec.value_dimensions));
    table.push_back(float_vector(blk + "ffn_norm.weight", embedding));
    if (spec.dense(layer)) {
      declare_feed_forward(blk + "ffn_", "", embedding, spec.feed_forward, Dimension::kFeedForward,
                           table);
      continue;
    }
    table.push_back(mirrored(blk + "ffn_gate_inp.weight", {embedding, experts.count, 1, 1}));
    table.push_back(optional(float_vector(blk + "exp_probs_b.bias", experts.count)));
    table.push_back(
        used_as(TensorUse::kExperts,
                split(blk + "ffn_gate_exps.weight", {embedding, experts.columns, experts.count, 1},
                      Dimension::kExpertColumns, 1)));
    table.push_back(
        used_as(TensorUse::kExperts,
                split(blk + "ffn_up_exps.weight", {embedding, experts.columns, experts.count, 1},
                      Dimension::kExpertColumns, 1)));
    table.push_back(
        used_as(TensorUse::kExperts,
                split(blk + "ffn_down_exps.weight", {experts.columns, embedding, experts.count, 1},
                      Dimension::kExpertColumns, 0)));
    if (experts.shared > 0)
      declare_feed_forward(blk + "ffn_", "_shexp", embedding,
                           std::int64_t{experts.shared} * experts.columns,
                           Dimension::kSharedColumns, table);
  }
  return table;
}

}  // namespace sinew
