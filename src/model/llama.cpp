#include "model/families.h"

namespace sinew {

// Llama 2 and 3, Mistral, SmolLM2: grouped-query attention and a gated feed-forward.
std::vector<TensorDecl> declare_llama(const ModelSpec& spec) {
  const std::int64_t embedding = spec.embedding;
  const std::int64_t query_columns = std::int64_t{spec.heads} * spec.key_dimensions;
  const std::int64_t key_columns = std::int64_t{spec.kv_heads} * spec.key_dimensions;
  const std::int64_t value_columns = std::int64_t{spec.kv_heads} * spec.value_dimensions;
  const std::int64_t output_columns = std::int64_t{spec.heads} * spec.value_dimensions;
  const std::int64_t heads_per_group = spec.heads / spec.kv_heads;

  std::vector<TensorDecl> table;
  declare_ends(spec, table);
  table.push_back(optional(float_vector("rope_freqs.weight", spec.rope.dimensions / 2)));
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    table.push_back(float_vector(blk + "attn_norm.weight", embedding));
    table.push_back(split(blk + "attn_q.weight", {embedding, query_columns, 1, 1},
                          Dimension::kHeads, 1, heads_per_group * spec.key_dimensions));
    table.push_back(split(blk + "attn_k.weight", {embedding, key_columns, 1, 1}, Dimension::kHeads,
                          1, spec.key_dimensions));
    table.push_back(split(blk + "attn_v.weight", {embedding, value_columns, 1, 1},
                          Dimension::kHeads, 1, spec.value_dimensions));
    table.push_back(split(blk + "attn_output.weight", {output_columns, embedding, 1, 1},
                          Dimension::kHeads, 0, heads_per_group * spec.value_dimensions));
    table.push_back(float_vector(blk + "ffn_norm.weight", embedding));
    declare_feed_forward(blk + "ffn_", "", embedding, spec.feed_forward, Dimension::kFeedForward,
                         table);
  }
  return table;
}

}  // namespace sinew
