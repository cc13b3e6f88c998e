#include "graph/attention.h"

namespace sinew {

ggml_tensor* attend_to_groups(GraphBuilder& g, ggml_tensor* query, ggml_tensor* key,
                              ggml_tensor* value, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const std::int64_t groups = g.heads();
  const std::int64_t tokens = g.shape().tokens;
  query = g.rope(query, at);
  key = g.rope(key, at);
  g.expand(query);
  g.write_cache(g.cache().keys(at.layer),
                ggml_reshape_2d(ctx, key, spec.key_dimensions * groups, tokens));
  g.write_cache(g.cache().values(at.layer), value);
  ggml_tensor* mixed =
      g.attend(query, g.read_cache(g.cache().keys(at.layer), spec.key_dimensions, groups),
               g.read_cache(g.cache().values(at.layer), spec.value_dimensions, groups), at,
               g.weight(at.blk + "attn_sinks.weight"));
  mixed = ggml_reshape_2d(ctx, mixed, spec.value_dimensions * query->ne[1], tokens);
  return ggml_mul_mat(ctx, g.weight(at.blk + "attn_output.weight"), g.wanted(mixed, at));
}

ggml_tensor* grouped_attention(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at) {
  if (g.heads() == 0) return nullptr;
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const std::int64_t groups = g.heads();
  const std::int64_t heads = groups * (spec.heads / spec.kv_heads);
  const std::int64_t tokens = g.shape().tokens;
  ggml_tensor* query = g.project(at.blk + "attn_q", x);
  ggml_tensor* key = g.project(at.blk + "attn_k", x);
  ggml_tensor* value = g.project(at.blk + "attn_v", x);
  query = ggml_reshape_3d(ctx, query, spec.key_dimensions, heads, tokens);
  key = ggml_reshape_3d(ctx, key, spec.key_dimensions, groups, tokens);
  if (g.weight(at.blk + "attn_q_norm.weight") != nullptr) {
    query = g.norm(query, at.blk + "attn_q_norm");
    key = g.norm(key, at.blk + "attn_k_norm");
  }
  return attend_to_groups(g, query, key, value, at);
}

}  // namespace sinew
