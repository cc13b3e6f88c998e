#include "graph/attention.h"
#include "graph/moe.h"

namespace sinew {
namespace {

struct Projected {
  ggml_tensor* query = nullptr;  // [elements of the heads held, tokens]
  ggml_tensor* key = nullptr;
};

// One root-mean-square norm over the elements of all heads, of which each rank holds some: ranks
// agree about the sums of squares.
Projected norm_all_heads(GraphBuilder& g, Projected in, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const ModelSpec& spec = g.spec();
  const std::int64_t tokens = g.shape().tokens;
  ggml_tensor* squares = nullptr;
  if (in.query != nullptr)
    squares = ggml_concat(ctx, ggml_sum_rows(ctx, ggml_sqr(ctx, in.query)),
                          ggml_sum_rows(ctx, ggml_sqr(ctx, in.key)), 0);
  squares = g.agree(squares, 2, tokens);
  if (in.query == nullptr) return {};

  const auto normed = [&](ggml_tensor* x, std::int64_t index, int heads, const char* name) {
    ggml_tensor* sum =
        ggml_cont(ctx, ggml_view_2d(ctx, squares, 1, tokens, squares->nb[1],
                                    static_cast<std::size_t>(index) * ggml_element_size(squares)));
    const float elements = static_cast<float>(heads) * static_cast<float>(spec.key_dimensions);
    ggml_tensor* root =
        ggml_sqrt(ctx, ggml_scale_bias(ctx, sum, 1.0F / elements, spec.rms_epsilon));
    return ggml_mul(ctx, ggml_div(ctx, x, root), g.weight(at.blk + name));
  };
  return {normed(in.query, 0, spec.heads, "attn_q_norm.weight"),
          normed(in.key, 1, spec.kv_heads, "attn_k_norm.weight")};
}

ggml_tensor* attention(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const std::int64_t dimensions = g.spec().key_dimensions;
  const std::int64_t tokens = g.shape().tokens;
  const Projected normed =
      norm_all_heads(g, {g.project(at.blk + "attn_q", x), g.project(at.blk + "attn_k", x)}, at);
  if (normed.query == nullptr) return nullptr;
  return attend_to_groups(
      g, ggml_reshape_3d(ctx, normed.query, dimensions, normed.query->ne[0] / dimensions, tokens),
      ggml_reshape_3d(ctx, normed.key, dimensions, g.heads(), tokens),
      g.project(at.blk + "attn_v", x), at);
}

}  // namespace

void forward_minimax(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.begin();
  for (const LayerPlace& at : g.layers()) {
    ggml_tensor* attended = attention(g, g.norm(x, at.blk + "attn_norm"), at);
    x = ggml_add(ctx, g.agree(attended, at), g.wanted(x, at));
    ggml_tensor* fed = mixture_of_experts(g, g.norm(x, at.blk + "ffn_norm"), at).partial;
    x = ggml_add(ctx, g.agree(fed, at), x);
  }
  g.finish(x);
}

}  // namespace sinew
