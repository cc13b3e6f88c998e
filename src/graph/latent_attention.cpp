#include "graph/latent_attention.h"

namespace sinew {
namespace {

// Queries: [nope | rotary] per head, rotated.
struct Query {
  ggml_tensor* nope;
  ggml_tensor* rotary;
};
Query make_query(GraphBuilder& g, ggml_tensor* low, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const std::int64_t nope = spec.latent.nope_dimensions;
  const std::int64_t heads = g.heads();
  const std::int64_t tokens = g.shape().tokens;
  ggml_tensor* query =
      g.project(at.blk + (spec.latent.query_rank > 0 ? "attn_q_b" : "attn_q"), low);
  const std::size_t head_bytes = ggml_row_size(query->type, spec.key_dimensions);
  const std::size_t token_bytes = head_bytes * static_cast<std::size_t>(heads);
  ggml_tensor* rotary = ggml_view_3d(ctx, query, spec.rope.dimensions, heads, tokens, head_bytes,
                                     token_bytes, ggml_row_size(query->type, nope));
  return {ggml_view_3d(ctx, query, nope, heads, tokens, head_bytes, token_bytes, 0),
          g.rope(rotary, at)};
}

// One latent, [kv_rank, tokens], and one rotated key, [rotary, 1, tokens], for all heads.
struct Latent {
  ggml_tensor* compressed;
  ggml_tensor* rotary;
};
Latent make_latent(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const std::int64_t rank = g.spec().latent.kv_rank;
  const std::int64_t tokens = g.shape().tokens;
  ggml_tensor* both = g.project(at.blk + "attn_kv_a_mqa", x);
  ggml_tensor* compressed = ggml_view_2d(ctx, both, rank, tokens, both->nb[1], 0);
  ggml_tensor* rotary = ggml_view_3d(ctx, both, g.spec().rope.dimensions, 1, tokens, both->nb[1],
                                     both->nb[1], ggml_row_size(both->type, rank));
  return {g.norm(compressed, at.blk + "attn_kv_a_norm"), g.rope(rotary, at)};
}

// With the key and value projections absorbed into query and output (DeepSeek-V2, arXiv:2405.04434,
// section 2.1.2): heads attend to the cached latent itself. [value elements of the heads, tokens]
ggml_tensor* attend_to_latent(GraphBuilder& g, const Query& query, const Latent& latent,
                              const LayerPlace& at, ggml_tensor* mask) {
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const std::int64_t tokens = g.shape().tokens;
  const std::int64_t rotary = spec.rope.dimensions;
  const std::int64_t rank = spec.latent.kv_rank;
  // nope part of the query x key projection of its head: a query against the latent.
  ggml_tensor* absorbed = ggml_mul_mat(ctx, g.weight(at.blk + "attn_k_b.weight"),
                                       ggml_permute(ctx, query.nope, 0, 2, 1, 3));
  ggml_tensor* whole_query =
      ggml_concat(ctx, ggml_permute(ctx, absorbed, 0, 2, 1, 3), query.rotary, 0);
  ggml_tensor* key =
      ggml_concat(ctx, latent.compressed, ggml_reshape_2d(ctx, latent.rotary, rotary, tokens), 0);
  g.expand(whole_query);
  g.write_cache(g.cache().keys(at.layer), key);
  ggml_tensor* keys = g.read_cache(g.cache().keys(at.layer), rank + rotary, 1);
  ggml_tensor* values = ggml_view_3d(ctx, keys, rank, keys->ne[1], 1, keys->nb[1], keys->nb[2], 0);
  ggml_tensor* mixed = g.attend(whole_query, keys, values, at, nullptr, mask);

  // Back from the latent to each head's value elements.
  mixed = ggml_mul_mat(ctx, g.weight(at.blk + "attn_v_b.weight"),
                       ggml_permute(ctx, mixed, 0, 2, 1, 3));  // [value, tokens, heads]
  return ggml_cont_2d(ctx, ggml_permute(ctx, mixed, 0, 2, 1, 3),
                      std::int64_t{spec.value_dimensions} * g.heads(), tokens);
}

// With one matrix from the latent to keys and values (files of the older layout): each head has its
// own keys, [nope | rotary], and values.
ggml_tensor* attend_to_heads(GraphBuilder& g, const Query& query, const Latent& latent,
                             const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const std::int64_t nope = spec.latent.nope_dimensions;
  const std::int64_t value = spec.value_dimensions;
  const std::int64_t heads = g.heads();
  const std::int64_t tokens = g.shape().tokens;
  ggml_tensor* both = g.project(at.blk + "attn_kv_b", latent.compressed);
  const std::size_t head_bytes = ggml_row_size(both->type, nope + value);
  const std::size_t token_bytes = head_bytes * static_cast<std::size_t>(heads);
  ggml_tensor* key_nope = ggml_view_3d(ctx, both, nope, heads, tokens, head_bytes, token_bytes, 0);
  ggml_tensor* values = ggml_cont_2d(ctx,
                                     ggml_view_3d(ctx, both, value, heads, tokens, head_bytes,
                                                  token_bytes, ggml_row_size(both->type, nope)),
                                     value * heads, tokens);
  ggml_tensor* key_rotary =
      ggml_repeat_4d(ctx, latent.rotary, spec.rope.dimensions, heads, tokens, 1);
  ggml_tensor* key = ggml_concat(ctx, key_nope, key_rotary, 0);
  ggml_tensor* whole_query = ggml_concat(ctx, query.nope, query.rotary, 0);
  g.expand(whole_query);
  g.write_cache(g.cache().keys(at.layer),
                ggml_reshape_2d(ctx, key, spec.key_dimensions * heads, tokens));
  g.write_cache(g.cache().values(at.layer), values);
  ggml_tensor* mixed =
      g.attend(whole_query, g.read_cache(g.cache().keys(at.layer), spec.key_dimensions, heads),
               g.read_cache(g.cache().values(at.layer), value, heads), at);
  return ggml_reshape_2d(ctx, mixed, value * heads, tokens);
}

}  // namespace

ggml_tensor* low_rank_query(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at) {
  if (g.spec().latent.query_rank == 0) return x;
  return g.norm(g.project(at.blk + "attn_q_a", x), at.blk + "attn_q_a_norm");
}

ggml_tensor* latent_attention(GraphBuilder& g, ggml_tensor* x, ggml_tensor* low,
                              const LayerPlace& at, ggml_tensor* mask) {
  const Query query = make_query(g, low, at);
  const Latent latent = make_latent(g, x, at);
  ggml_tensor* mixed = g.spec().latent.expanded ? attend_to_heads(g, query, latent, at)
                                                : attend_to_latent(g, query, latent, at, mask);
  return g.project(at.blk + "attn_output", g.wanted(mixed, at));
}

}  // namespace sinew
