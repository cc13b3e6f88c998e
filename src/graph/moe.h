#pragma once

#include <string>

#include "graph/builder.h"

namespace sinew {

// Mixture of experts over this rank's columns of every expert, a partial sum, or null if it holds
// none. Routing (DeepSeek-V3, arXiv:2412.19437, section 2.1.2) is computed by every rank from the
// same bits. `x`: [embedding, tokens]; `prefix`: "blk.3.".
ggml_tensor* mixture_of_experts(GraphBuilder& g, ggml_tensor* x, const std::string& prefix);

}  // namespace sinew
