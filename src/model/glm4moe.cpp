#include "model/families.h"

namespace sinew {

// GLM-4.5, 4.6 and 4.7: biases on queries, keys and values, only part of a head rotated, dense
// layers first, then experts with a shared one; the larger models have norms of queries and keys.
void read_glm4moe(SpecReader& reader, ModelSpec& spec) {
  read_grouped_attention(reader, spec);
  spec.rope.neox = true;
  if (reader.has("rope.dimension_sections"))
    reader.unsupported("GLM with images (rope.dimension_sections) is not implemented");
  spec.feed_forward = reader.dimension("feed_forward_length");
  spec.experts = read_experts(reader, spec, {ExpertSpec::Gating::kSigmoid});
  if (spec.experts.count == 0) reader.reject("expert_count", "is missing or 0");
}

void declare_glm4moe(const ModelSpec& spec, TensorTable& table) {
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_grouped_attention(spec, {.bias = Need::kOptional, .head_norms = Need::kOptional},
                              table);
    table.vector("post_attention_norm.weight", spec.embedding);
    if (spec.dense(layer))
      table.feed_forward("", spec.feed_forward, Dimension::kFeedForward);
    else
      declare_experts(spec, {.choice_bias = Need::kRequired}, table);
  }
}

}  // namespace sinew
