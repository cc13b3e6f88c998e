#include "model/families.h"

namespace sinew {

// gpt-oss: biases everywhere, every second layer looks back a window only, and each head has a sink
// (arXiv:2309.17453), a logit that takes part in the softmax and has no value.
void read_gpt_oss(SpecReader& reader, ModelSpec& spec) {
  constexpr int kWindowPeriod = 2;
  read_grouped_attention(reader, spec);
  spec.rope.neox = true;
  spec.activation = Activation::kClampedSwiglu;
  spec.experts = read_experts(reader, spec, {ExpertSpec::Gating::kSoftmaxOfChosen});
  if (spec.experts.count == 0) reader.reject("expert_count", "is missing or 0");
  spec.experts.gating = ExpertSpec::Gating::kSoftmaxOfChosen;
  read_window(reader, spec, kWindowPeriod);
  if (spec.window.size == 0) reader.reject("attention.sliding_window", "is missing or 0");
  spec.window.rope.base = reader.real_or("rope.freq_base_swa", spec.rope.base);
  // The published configurations say "truncate": false, for which GGUF has no key.
  use_unrounded_yarn(spec.rope);
  use_unrounded_yarn(spec.window.rope);
}

void declare_gpt_oss(const ModelSpec& spec, TensorTable& table) {
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_grouped_attention(spec, {.bias = Need::kRequired, .output_bias = Need::kRequired},
                              table);
    table.split_vector("attn_sinks.weight", spec.heads, Dimension::kHeads,
                       spec.heads / spec.kv_heads);
    table.vector("post_attention_norm.weight", spec.embedding);
    declare_experts(spec, {.biases = Need::kRequired}, table);
  }
}

}  // namespace sinew
