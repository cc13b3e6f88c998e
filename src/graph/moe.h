#pragma once

#include <string>

#include "graph/builder.h"

namespace sinew {

// What the chosen experts give a token.
struct ExpertSum {
  // Over this rank's columns of every expert, or its whole experts; null if it holds none.
  ggml_tensor* partial = nullptr;
  // Weighted biases of the chosen experts, to be added after ranks have agreed; null if the family
  // has none.
  ggml_tensor* bias = nullptr;
};

// Mixture of experts. Routing (DeepSeek-V3, arXiv:2412.19437, section 2.1.2) is computed by every
// rank from the same bits. `x`: [embedding, tokens].
ExpertSum mixture_of_experts(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at);

// `scores`, F32 [experts, tokens], with those outside the best groups of each token at -infinity.
ggml_tensor* keep_best_groups(ggml_context* ctx, ggml_tensor* scores, const ExpertSpec& experts);

}  // namespace sinew
