#include "graph/builder.h"

namespace sinew {
namespace {

// Grouped-query attention over the key-value groups that this rank holds; a partial sum.
ggml_tensor* attention(GraphBuilder& g, ggml_tensor* x, int layer, bool last) {
  if (g.heads() == 0) return nullptr;
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const std::string blk = fmt::format("blk.{}.", layer);
  const std::int64_t groups = g.heads();
  const std::int64_t heads = groups * (spec.heads / spec.kv_heads);
  const std::int64_t tokens = g.shape().tokens;
  ggml_tensor* factors = g.weight("rope_freqs.weight");

  ggml_tensor* query = g.project(blk + "attn_q.weight", x);
  ggml_tensor* key = g.project(blk + "attn_k.weight", x);
  ggml_tensor* value = g.project(blk + "attn_v.weight", x);
  query = g.rope(ggml_reshape_3d(ctx, query, spec.key_dimensions, heads, tokens), factors);
  key = g.rope(ggml_reshape_3d(ctx, key, spec.key_dimensions, groups, tokens), factors);

  g.expand(query);
  g.write_cache(g.cache().keys(layer),
                ggml_reshape_2d(ctx, key, spec.key_dimensions * groups, tokens));
  g.write_cache(g.cache().values(layer), value);
  ggml_tensor* mixed =
      g.attend(query, g.read_cache(g.cache().keys(layer), spec.key_dimensions, groups),
               g.read_cache(g.cache().values(layer), spec.value_dimensions, groups));
  mixed = ggml_reshape_2d(ctx, mixed, spec.value_dimensions * heads, tokens);
  return g.project(blk + "attn_output.weight", last ? g.wanted_rows(mixed) : mixed);
}

}  // namespace

void forward_llama(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.embed();
  for (int layer = 0; layer < g.spec().layers; ++layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    const bool last = layer == g.spec().layers - 1;
    const std::int64_t rows = last ? g.shape().rows : g.shape().tokens;

    ggml_tensor* attended = attention(g, g.norm(x, blk + "attn_norm.weight"), layer, last);
    ggml_tensor* residual = last ? g.wanted_rows(x) : x;
    x = ggml_add(ctx, g.agree(attended, rows), residual);

    ggml_tensor* fed = g.feed_forward(g.norm(x, blk + "ffn_norm.weight"), blk + "ffn_", "");
    x = ggml_add(ctx, g.agree(fed, rows), x);
  }
  g.finish(x);
}

}  // namespace sinew
