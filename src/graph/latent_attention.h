#pragma once

#include "graph/builder.h"

namespace sinew {

// What a layer's queries are projected from: their low-rank form, [query_rank, tokens], or `x`, the
// normed hidden state, where the model has none.
ggml_tensor* low_rank_query(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at);

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) over the heads that this
// rank holds, at least one: a partial sum. `low`: of low_rank_query. `mask`, F16 [cells, tokens]:
// null for all earlier tokens; not with the expanded layout.
ggml_tensor* latent_attention(GraphBuilder& g, ggml_tensor* x, ggml_tensor* low,
                              const LayerPlace& at, ggml_tensor* mask = nullptr);

}  // namespace sinew
