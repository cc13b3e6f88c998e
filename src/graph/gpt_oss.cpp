#include "graph/attention.h"
#include "graph/moe.h"

namespace sinew {

void forward_gpt_oss(GraphBuilder& g) {
  ggml_context* ctx = g.context();
  ggml_tensor* x = g.begin();
  for (const LayerPlace& at : g.layers()) {
    ggml_tensor* attended = grouped_attention(g, g.norm(x, at.blk + "attn_norm"), at);
    x = ggml_add(ctx, g.agree(attended, at, at.blk + "attn_output"), g.wanted(x, at));
    const ExpertSum fed = mixture_of_experts(g, g.norm(x, at.blk + "post_attention_norm"), at);
    x = ggml_add(ctx, g.add(g.agree(fed.partial, at), fed.bias), x);
  }
  g.finish(x);
}

}  // namespace sinew
