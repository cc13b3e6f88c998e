#include "graph/attention.h"
#include "graph/moe.h"

namespace sinew {

void forward_glm4moe(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.begin();
  for (const LayerPlace& at : g.layers()) {
    ggml_tensor* attended = grouped_attention(g, g.norm(x, at.blk + "attn_norm"), at);
    x = ggml_add(ctx, g.agree(attended, at), g.wanted(x, at));
    ggml_tensor* normed = g.norm(x, at.blk + "post_attention_norm");
    ggml_tensor* fed = g.spec().dense(at.layer) ? g.feed_forward(normed, at)
                                                : g.add(mixture_of_experts(g, normed, at).partial,
                                                        g.feed_forward(normed, at, "_shexp"));
    x = ggml_add(ctx, g.agree(fed, at), x);
  }
  g.finish(x);
}

}  // namespace sinew
