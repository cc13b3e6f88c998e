#include "model/families.h"

namespace sinew {

// Qwen 2 and 2.5: as Llama, with biases on queries, keys and values.
void read_qwen2(SpecReader& reader, ModelSpec& spec) {
  read_grouped_attention(reader, spec);
  spec.rope.neox = true;
  spec.feed_forward = reader.dimension("feed_forward_length");
}

void declare_qwen2(const ModelSpec& spec, TensorTable& table) {
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_grouped_attention(spec, {.bias = Need::kRequired}, table);
    table.vector("ffn_norm.weight", spec.embedding);
    table.feed_forward("", spec.feed_forward, Dimension::kFeedForward);
  }
}

// Qwen 3: norms of each head's query and key in place of the biases.
void read_qwen3(SpecReader& reader, ModelSpec& spec) {
  read_qwen2(reader, spec);
}

// With experts in every layer.
void read_qwen3moe(SpecReader& reader, ModelSpec& spec) {
  read_grouped_attention(reader, spec);
  spec.rope.neox = true;
  spec.experts = read_experts(reader, spec, {ExpertSpec::Gating::kSoftmax, true});
  if (spec.experts.count == 0) reader.reject("expert_count", "is missing or 0");
}

void declare_qwen3(const ModelSpec& spec, TensorTable& table) {
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_grouped_attention(spec, {.head_norms = Need::kRequired}, table);
    table.vector("ffn_norm.weight", spec.embedding);
    if (spec.dense(layer))
      table.feed_forward("", spec.feed_forward, Dimension::kFeedForward);
    else
      declare_experts(spec, {}, table);
  }
}

}  // namespace sinew
