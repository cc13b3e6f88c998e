#include "model/families.h"

namespace sinew {

// Gemma 3 (text): norms before and after both parts of a layer, five layers of six look back a
// window only and rotate with another base, scaled embeddings.
void read_gemma3(SpecReader& reader, ModelSpec& spec) {
  constexpr int kWindowPeriod = 6;
  constexpr float kWindowBase = 10000.0F;
  constexpr int kLayersOf27B = 62;
  read_grouped_attention(reader, spec);
  spec.rope.neox = true;
  spec.feed_forward = reader.dimension("feed_forward_length");
  spec.activation = Activation::kGeglu;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.embedding));
  // The largest model scales queries by the width of a head as the embedding implies it, not as
  // heads are (gemma_pytorch, config.py).
  if (spec.layers == kLayersOf27B)
    spec.attention_scale =
        std::sqrt(static_cast<float>(spec.heads) / static_cast<float>(spec.embedding));
  spec.logit_cap = reader.real_or("final_logit_softcapping", 0.0);
  read_window(reader, spec, kWindowPeriod);
  spec.window.rope.base = reader.real_or("rope.freq_base_swa", kWindowBase);
  spec.window.rope.scale = 1.0F;
}

void declare_gemma3(const ModelSpec& spec, TensorTable& table) {
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_grouped_attention(spec, {.head_norms = Need::kRequired}, table);
    table.vector("post_attention_norm.weight", spec.embedding);
    table.vector("ffn_norm.weight", spec.embedding);
    table.feed_forward("", spec.feed_forward, Dimension::kFeedForward);
    table.vector("post_ffw_norm.weight", spec.embedding);
  }
}

}  // namespace sinew
