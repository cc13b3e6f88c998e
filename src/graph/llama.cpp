#include "graph/attention.h"
#include "graph/moe.h"

namespace sinew {

void forward_llama(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.begin();
  for (const LayerPlace& at : g.layers()) {
    ggml_tensor* attended = grouped_attention(g, g.norm(x, at.blk + "attn_norm"), at);
    x = ggml_add(ctx, g.agree(attended, at, at.blk + "attn_output"), g.wanted(x, at));

    ggml_tensor* normed = g.norm(x, at.blk + "ffn_norm");
    ggml_tensor* fed = g.spec().dense(at.layer) ? g.feed_forward(normed, at)
                                                : mixture_of_experts(g, normed, at).partial;
    x = ggml_add(ctx, g.agree(fed, at), x);
  }
  g.finish(x);
}

}  // namespace sinew
