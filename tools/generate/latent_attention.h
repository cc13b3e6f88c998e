#pragma once

#include "weights.h"

// What the DeepSeek recipes and their sparse successors share: latent attention and the experts.
namespace sinew::generate {

enum class LatentLayout : std::uint8_t {
  kAbsorbed,  // attn_k_b and attn_v_b, keys *_mla
  kTogether,  // older files: attn_kv_b, no keys *_mla
};

// 0 or false: the file does not have it.
struct LatentShape {
  std::string_view architecture = "deepseek2", name, pre;
  std::uint32_t context, hidden, layers, heads, query_rank, kv_rank, nope, rope, value;
  std::uint32_t feed_forward, expert_columns, dense_layers, experts, used, shared = 1;
  std::uint32_t groups = 0, groups_used = 0;
  std::uint32_t vocabulary;
  std::uint32_t gating = kSigmoidGating;
  bool selection_bias = true;
  bool weights_norm = true;
  // llama.cpp takes a file of 26 or 27 layers for a Lite model, which has no key for the rank of
  // queries; any other needs it, be it 0.
  bool query_rank_key = true;
  float expert_scale, rope_base, yarn_factor = 0.0F, yarn_log_multiplier = 0.0F;
  LatentLayout layout = LatentLayout::kAbsorbed;
  // The indexer of sparse attention.
  std::uint32_t index_heads = 0, index_head = 0, index_top = 0;
  std::vector<bool> index_layers = {};  // which have an indexer of their own; empty: all

  std::uint32_t layers_in_file(const Options& options) const {
    return layers + (options.prediction_layer ? 1 : 0);
  }
};

Result<Recipe> make_latent(const LatentShape& shape, const Types& usual, const Options& options);

}  // namespace sinew::generate
