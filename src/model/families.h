#pragma once

#include <vector>

#include "model/tensor_decl.h"

namespace sinew {

// The tensor tables, one file per family (model/llama.cpp, model/deepseek2.cpp).
std::vector<TensorDecl> declare_llama(const ModelSpec& spec);
std::vector<TensorDecl> declare_deepseek2(const ModelSpec& spec);

// Rows of such tables.
TensorDecl mirrored(std::string name, std::array<std::int64_t, 4> shape);
TensorDecl float_vector(std::string name, std::int64_t size);  // a norm or a bias
// Split along `axis`; one index of `dimension` owns `elements` elements of it.
TensorDecl split(std::string name, std::array<std::int64_t, 4> shape, Dimension dimension, int axis,
                 std::int64_t elements = 1);
TensorDecl used_as(TensorUse use, TensorDecl decl);
TensorDecl optional(TensorDecl decl);
// Embedding, final norm and output layer, which all families share.
void declare_ends(const ModelSpec& spec, std::vector<TensorDecl>& table);
// Gate, up and down projections of a gated feed-forward, by their name prefix ("blk.0.ffn_").
void declare_feed_forward(const std::string& prefix, const std::string& suffix,
                          std::int64_t embedding, std::int64_t columns, Dimension dimension,
                          std::vector<TensorDecl>& table);

}  // namespace sinew
