#include "graph/attention.h"

namespace sinew {

void forward_gemma3(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.begin();
  for (const LayerPlace& at : g.layers()) {
    ggml_tensor* attended = grouped_attention(g, g.norm(x, at.blk + "attn_norm"), at);
    attended = g.norm(g.agree(attended, at), at.blk + "post_attention_norm");
    x = ggml_add(ctx, attended, g.wanted(x, at));
    ggml_tensor* fed = g.feed_forward(g.norm(x, at.blk + "ffn_norm"), at);
    x = ggml_add(ctx, g.norm(g.agree(fed, at), at.blk + "post_ffw_norm"), x);
  }
  g.finish(x);
}

}  // namespace sinew
