#pragma once

#include "graph/builder.h"

namespace sinew {

// Grouped-query attention over the key-value groups that this rank holds, with whatever biases,
// norms of heads and sinks the file has: a partial sum, without the output's bias. `x`: the normed
// hidden state, [embedding, tokens].
ggml_tensor* grouped_attention(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at);

// The part after the projections: `query` [dimensions, heads, tokens], `key` [dimensions, groups,
// tokens] and `value` [elements, tokens], not yet rotated.
ggml_tensor* attend_to_groups(GraphBuilder& g, ggml_tensor* query, ggml_tensor* key,
                              ggml_tensor* value, const LayerPlace& at);

}  // namespace sinew
