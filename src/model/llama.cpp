#include "model/families.h"

namespace sinew {

// Llama 2 and 3, Mistral, SmolLM2: grouped-query attention and a gated feed-forward; Mixtral has
// experts in its place.
void read_llama(SpecReader& reader, ModelSpec& spec) {
  read_grouped_attention(reader, spec);
  spec.feed_forward = reader.dimension("feed_forward_length");
  spec.experts =
      read_experts(reader, spec, {ExpertSpec::Gating::kSoftmax, true, spec.feed_forward});
}

void declare_llama(const ModelSpec& spec, TensorTable& table) {
  table.ends();
  table.vector("rope_freqs.weight", spec.rope.dimensions / 2).required = false;
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_grouped_attention(spec, {.bias = Need::kOptional, .output_bias = Need::kOptional},
                              table);
    table.vector("ffn_norm.weight", spec.embedding);
    if (spec.dense(layer))
      table.feed_forward("", spec.feed_forward, Dimension::kFeedForward);
    else
      declare_experts(spec, {}, table);
  }
}

}  // namespace sinew
