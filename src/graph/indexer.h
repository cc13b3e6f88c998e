#pragma once

#include "graph/builder.h"

namespace sinew {

// The lightning indexer of sparse attention (DeepSeek-V3.2-Exp's technical report, section 1):
// score(token, cell) = sum over index heads of weight x relu(query x key).

// Caches the index keys of this step's tokens and gives the mask of the cells that each token looks
// at, F16 [cells, tokens]. Null where all cells are few enough to be looked at. `x`: the normed
// hidden state; `low`: the queries' low-rank form. For ranks that hold heads.
ggml_tensor* chosen_cells(GraphBuilder& g, ggml_tensor* x, ggml_tensor* low, const LayerPlace& at);

// The parts of it, for any tensors.
struct IndexInputs {
  ggml_tensor* queries;  // F32 [dimensions, heads, tokens]
  ggml_tensor* keys;     // F16 [dimensions, cells]
  ggml_tensor* weights;  // F32 [heads, tokens]
  ggml_tensor* mask;     // F16 [cells, tokens]: 0, or -inf for cells that are not to be seen
};
// Scores, F32 [cells, tokens], by ggml's own operator, or by many: the same numbers but for
// rounding, with as much memory for every head as the scores take.
ggml_tensor* fused_index_scores(ggml_context* ctx, const IndexInputs& in);
ggml_tensor* composed_index_scores(ggml_context* ctx, const IndexInputs& in);
// `mask` with all but the `count` best cells of each token hidden as well.
ggml_tensor* keep_best_cells(ggml_context* ctx, ggml_tensor* scores, ggml_tensor* mask, int count);

}  // namespace sinew
