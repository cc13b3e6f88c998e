#include "graph/builder.h"
#include "graph/moe.h"

namespace sinew {
namespace {

// Multi-head latent attention with the key and value projections absorbed into query and output
// (DeepSeek-V2, arXiv:2405.04434, section 2.1.2): heads attend to the cached latent itself. A
// partial sum.
ggml_tensor* latent_attention(GraphBuilder& g, ggml_tensor* x, int layer, bool last) {
  if (g.heads() == 0) return nullptr;
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const LatentSpec& latent = spec.latent;
  const std::string blk = fmt::format("blk.{}.", layer);
  const std::int64_t heads = g.heads();
  const std::int64_t tokens = g.shape().tokens;
  const std::int64_t rotary = spec.rope.dimensions;

  // Queries: [nope | rotary] per head.
  ggml_tensor* query =
      latent.query_rank > 0
          ? g.project(blk + "attn_q_b.weight",
                      g.norm(g.project(blk + "attn_q_a.weight", x), blk + "attn_q_a_norm.weight"))
          : g.project(blk + "attn_q.weight", x);
  const std::size_t head_bytes = ggml_row_size(query->type, spec.key_dimensions);
  const std::size_t token_bytes = head_bytes * static_cast<std::size_t>(heads);
  ggml_tensor* query_nope =
      ggml_view_3d(ctx, query, latent.nope_dimensions, heads, tokens, head_bytes, token_bytes, 0);
  ggml_tensor* query_rotary =
      ggml_view_3d(ctx, query, rotary, heads, tokens, head_bytes, token_bytes,
                   ggml_row_size(query->type, latent.nope_dimensions));

  // One latent and one rotary key per token, for all heads.
  ggml_tensor* both = g.project(blk + "attn_kv_a_mqa.weight", x);
  const std::size_t both_bytes = both->nb[1];
  ggml_tensor* compressed = ggml_view_2d(ctx, both, latent.kv_rank, tokens, both_bytes, 0);
  ggml_tensor* key_rotary = ggml_view_3d(ctx, both, rotary, 1, tokens, both_bytes, both_bytes,
                                         ggml_row_size(both->type, latent.kv_rank));
  compressed = g.norm(compressed, blk + "attn_kv_a_norm.weight");
  query_rotary = g.rope(query_rotary, nullptr);
  key_rotary = g.rope(key_rotary, nullptr);

  // nope part of the query x key projection of its head: a query against the latent.
  ggml_tensor* absorbed = ggml_mul_mat(ctx, g.weight(blk + "attn_k_b.weight"),
                                       ggml_permute(ctx, query_nope, 0, 2, 1, 3));
  query = ggml_concat(ctx, ggml_permute(ctx, absorbed, 0, 2, 1, 3), query_rotary, 0);
  ggml_tensor* key =
      ggml_concat(ctx, compressed, ggml_reshape_2d(ctx, key_rotary, rotary, tokens), 0);

  g.expand(query);
  g.write_cache(g.cache().keys(layer), key);
  ggml_tensor* keys = g.read_cache(g.cache().keys(layer), latent.kv_rank + rotary, 1);
  ggml_tensor* values =
      ggml_view_3d(ctx, keys, latent.kv_rank, keys->ne[1], 1, keys->nb[1], keys->nb[2], 0);
  ggml_tensor* mixed = g.attend(query, keys, values);  // [kv_rank, heads, tokens]

  // Back from the latent to each head's value elements.
  mixed = ggml_mul_mat(ctx, g.weight(blk + "attn_v_b.weight"),
                       ggml_permute(ctx, mixed, 0, 2, 1, 3));  // [value, tokens, heads]
  mixed = ggml_cont_2d(ctx, ggml_permute(ctx, mixed, 0, 2, 1, 3),
                       std::int64_t{spec.value_dimensions} * heads, tokens);
  return g.project(blk + "attn_output.weight", last ? g.wanted_rows(mixed) : mixed);
}

}  // namespace

void forward_deepseek2(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.embed();
  for (int layer = 0; layer < g.spec().layers; ++layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    const bool last = layer == g.spec().layers - 1;
    const std::int64_t rows = last ? g.shape().rows : g.shape().tokens;

    ggml_tensor* attended = latent_attention(g, g.norm(x, blk + "attn_norm.weight"), layer, last);
    ggml_tensor* residual = last ? g.wanted_rows(x) : x;
    x = ggml_add(ctx, g.agree(attended, rows), residual);

    ggml_tensor* normed = g.norm(x, blk + "ffn_norm.weight");
    ggml_tensor* fed = g.spec().dense(layer)
                           ? g.feed_forward(normed, blk + "ffn_", "")
                           : g.add(mixture_of_experts(g, normed, blk),
                                   g.feed_forward(normed, blk + "ffn_", "_shexp"));
    x = ggml_add(ctx, g.agree(fed, rows), x);
  }
  g.finish(x);
}

}  // namespace sinew
