#include "graph/indexer.h"

#include <cmath>

namespace sinew {
namespace {

// Of the layer norm of index keys (inference/model.py of DeepSeek-V3.2-Exp, modeling_glm_moe_dsa.py
// of GLM 5); files do not say it.
constexpr float kKeyEpsilon = 1e-6F;

// The reference rotates queries and keys by a Hadamard matrix before it rounds them to 8 bits. That
// leaves their products as they are, and F16 keys need no help against outliers: it is left out.
ggml_tensor* index_queries(GraphBuilder& g, ggml_tensor* low, const LayerPlace& at) {
  const IndexerSpec& indexer = g.spec().indexer;
  ggml_tensor* query = g.project(at.blk + "indexer.attn_q_b", low);
  query = ggml_reshape_3d(g.context(), query, indexer.dimensions, indexer.heads, g.shape().tokens);
  return g.rope(query, indexer.rope);
}

void write_index_keys(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const IndexerSpec& indexer = g.spec().indexer;
  const std::int64_t tokens = g.shape().tokens;
  ggml_tensor* key = ggml_norm(ctx, g.project(at.blk + "indexer.attn_k", x), kKeyEpsilon);
  key = ggml_mul(ctx, key, g.weight(at.blk + "indexer.k_norm.weight"));
  key = ggml_add(ctx, key, g.weight(at.blk + "indexer.k_norm.bias"));
  key = g.rope(ggml_reshape_3d(ctx, key, indexer.dimensions, 1, tokens), indexer.rope);
  g.write_cache(g.cache().index_keys(at.layer),
                ggml_reshape_2d(ctx, key, indexer.dimensions, tokens));
}

ggml_tensor* index_scores(GraphBuilder& g, ggml_tensor* x, ggml_tensor* low, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const IndexerSpec& indexer = g.spec().indexer;
  const auto products = static_cast<float>(std::int64_t{indexer.heads} * indexer.dimensions);
  ggml_tensor* weights = g.project(at.blk + "indexer.proj", x);
  const IndexInputs in{index_queries(g, low, at),
                       g.read_cache(g.cache().index_keys(at.layer), indexer.dimensions, 1),
                       ggml_scale(ctx, weights, 1.0F / std::sqrt(products)), g.inputs().mask};
  ggml_tensor* fused = fused_index_scores(ctx, in);
  return g.device().supports(fused) ? fused : composed_index_scores(ctx, in);
}

}  // namespace

ggml_tensor* fused_index_scores(ggml_context* ctx, const IndexInputs& in) {
  ggml_tensor* keys = ggml_permute(ctx, in.keys, 0, 2, 1, 3);  // [dimensions, 1, cells]
  return ggml_lightning_indexer(ctx, in.queries, keys, in.weights, in.mask);
}

ggml_tensor* composed_index_scores(ggml_context* ctx, const IndexInputs& in) {
  const std::int64_t heads = in.queries->ne[1];
  const std::int64_t tokens = in.queries->ne[2];
  const std::int64_t cells = in.keys->ne[1];
  ggml_tensor* flat = ggml_reshape_2d(ctx, in.queries, in.queries->ne[0], heads * tokens);
  ggml_tensor* products = ggml_relu(ctx, ggml_mul_mat(ctx, in.keys, flat));
  products = ggml_reshape_3d(ctx, products, cells, heads, tokens);
  products = ggml_mul(ctx, products, ggml_reshape_3d(ctx, in.weights, 1, heads, tokens));
  ggml_tensor* by_cell = ggml_cont(ctx, ggml_permute(ctx, products, 1, 0, 2, 3));
  ggml_tensor* sum = ggml_reshape_2d(ctx, ggml_sum_rows(ctx, by_cell), cells, tokens);
  return ggml_add(ctx, sum, ggml_cast(ctx, in.mask, GGML_TYPE_F32));
}

ggml_tensor* keep_best_cells(ggml_context* ctx, ggml_tensor* scores, ggml_tensor* mask, int count) {
  const std::int64_t cells = scores->ne[0];
  const std::int64_t tokens = scores->ne[1];
  ggml_tensor* best = ggml_top_k(ctx, scores, count);  // [count, tokens]
  // Cells as rows of one element, so that they can be set by index.
  ggml_tensor* hidden = ggml_reshape_3d(ctx, ggml_fill(ctx, mask, -INFINITY), 1, cells, tokens);
  ggml_tensor* zeros =
      ggml_fill(ctx, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, count, tokens), 0.0F);
  ggml_tensor* shown = ggml_reshape_2d(ctx, ggml_set_rows(ctx, hidden, zeros, best), cells, tokens);
  // Where fewer than `count` cells may be seen, the best ones include some that may not.
  return ggml_add(ctx, shown, mask);
}

ggml_tensor* chosen_cells(GraphBuilder& g, ggml_tensor* x, ggml_tensor* low, const LayerPlace& at) {
  write_index_keys(g, x, at);
  const int count = g.spec().indexer.chosen;
  if (g.shape().cells <= count) return nullptr;
  return keep_best_cells(g.context(), index_scores(g, x, low, at), g.inputs().mask, count);
}

}  // namespace sinew
