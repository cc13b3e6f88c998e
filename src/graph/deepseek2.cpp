#include "graph/latent_attention.h"
#include "graph/moe.h"

namespace sinew {

void forward_deepseek2(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.begin();
  for (const LayerPlace& at : g.layers()) {
    ggml_tensor* attended = nullptr;
    if (g.heads() > 0) {
      ggml_tensor* normed = g.norm(x, at.blk + "attn_norm");
      attended = latent_attention(g, normed, low_rank_query(g, normed, at), at);
    }
    x = ggml_add(ctx, g.agree(attended, at), g.wanted(x, at));

    ggml_tensor* normed = g.norm(x, at.blk + "ffn_norm");
    ggml_tensor* fed = g.spec().dense(at.layer) ? g.feed_forward(normed, at)
                                                : g.add(mixture_of_experts(g, normed, at).partial,
                                                        g.feed_forward(normed, at, "_shexp"));
    x = ggml_add(ctx, g.agree(fed, at), x);
  }
  g.finish(x);
}

}  // namespace sinew
