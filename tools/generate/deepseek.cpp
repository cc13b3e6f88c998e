#include "latent_attention.h"

namespace sinew::generate {
namespace {

constexpr Types kHalf{TensorType::kF16, TensorType::kF16, TensorType::kF16, TensorType::kF16,
                      TensorType::kF16};

// Of shapes from which the variants differ in a few numbers.
LatentShape tiny_deepseek() {
  return {.name = "tiny-deepseek-random",
          .pre = "deepseek-v3",
          .context = 16384,
          .hidden = 256,
          .layers = 3,
          .heads = 16,
          .query_rank = 256,
          .kv_rank = 256,
          .nope = 64,
          .rope = 32,
          .value = 64,
          .feed_forward = 1536,
          .expert_columns = 1024,
          .dense_layers = 1,
          .experts = 8,
          .used = 3,
          .groups = 4,
          .groups_used = 2,
          .vocabulary = 320,
          .expert_scale = 2.5F,
          .rope_base = 10000.0F,
          .yarn_factor = 4.0F,
          .yarn_log_multiplier = 0.1F};
}

LatentShape tiny_kimi() {
  LatentShape shape = tiny_deepseek();
  shape.name = "tiny-kimi-random";
  shape.pre = "kimi-k2";
  shape.context = 131072;
  shape.heads = 8;
  shape.value = 128;
  shape.feed_forward = 1024;
  shape.expert_columns = 512;
  shape.experts = 16;
  shape.used = 4;
  shape.groups = shape.groups_used = 0;
  shape.expert_scale = 2.827F;
  shape.rope_base = 50000.0F;
  shape.yarn_factor = 32.0F;
  return shape;
}

// Kimi K2's shapes, with 5 of 61 layers, 40 of 384 experts and an eighth of the vocabulary.
LatentShape k2_cut() {
  return {.name = "k2-cut-random",
          .pre = "deepseek-v3",
          .context = 131072,
          .hidden = 7168,
          .layers = 5,
          .heads = 64,
          .query_rank = 1536,
          .kv_rank = 512,
          .nope = 128,
          .rope = 64,
          .value = 128,
          .feed_forward = 18432,
          .expert_columns = 2048,
          .dense_layers = 1,
          .experts = 40,
          .used = 8,
          .vocabulary = 20480,
          .expert_scale = 2.5F,
          .rope_base = 10000.0F,
          .yarn_factor = 32.0F,
          .yarn_log_multiplier = 0.1F};
}

// Softmax scores, queries without a low rank, two shared experts. As many layers as the published
// model has, because llama.cpp knows it by them; narrow and mostly dense, so that the file stays
// small and rounding does not grow through 26 choices of experts.
LatentShape tiny_lite() {
  LatentShape shape = tiny_deepseek();
  shape.name = "tiny-deepseek-lite-random";
  shape.pre = "deepseek-llm";
  shape.layers = 27;
  shape.dense_layers = 25;
  shape.heads = 8;
  shape.query_rank = 0;
  shape.query_rank_key = false;
  shape.kv_rank = 128;
  shape.nope = 32;
  shape.value = 32;
  shape.feed_forward = 256;
  shape.expert_columns = 256;
  shape.shared = 2;
  shape.groups = shape.groups_used = 0;
  shape.gating = kSoftmaxGating;
  shape.selection_bias = false;
  shape.weights_norm = false;
  shape.expert_scale = 1.0F;
  shape.yarn_factor = 40.0F;
  shape.yarn_log_multiplier = 0.0707F;
  shape.context = 163840;
  return shape;
}

// A file as converters wrote it before the matrices of keys and values were split; the scores'
// function had no key either.
LatentShape tiny_old() {
  LatentShape shape = tiny_lite();
  shape.name = "tiny-deepseek-old-random";
  shape.layout = LatentLayout::kTogether;
  shape.gating = 0;
  return shape;
}

// Without the published model's groups of experts: llama.cpp chooses among those as V3 does.
LatentShape tiny_second() {
  LatentShape shape = tiny_deepseek();
  shape.name = "tiny-deepseek-v2-random";
  shape.pre = "deepseek-llm";
  shape.gating = kSoftmaxGating;
  shape.selection_bias = false;
  shape.weights_norm = false;
  shape.shared = 2;
  shape.groups = shape.groups_used = 0;
  shape.expert_columns = 768;
  // The published 16 is for 6 of 160 experts; so many of few have larger scores.
  shape.expert_scale = 2.0F;
  shape.yarn_factor = 40.0F;
  shape.yarn_log_multiplier = 0.0707F;
  shape.context = 163840;
  return shape;
}

// Sigmoid scores, queries without a low rank, no YaRN. Published with 27 layers; with fewer,
// llama.cpp wants the key of the rank, which is 0.
LatentShape tiny_moonlight() {
  LatentShape shape = tiny_deepseek();
  shape.name = "tiny-moonlight-random";
  shape.pre = "kimi-k2";
  shape.query_rank = 0;
  shape.groups = shape.groups_used = 1;
  shape.shared = 2;
  shape.expert_columns = 768;
  shape.expert_scale = 2.446F;
  shape.rope_base = 50000.0F;
  shape.yarn_factor = 0.0F;
  return shape;
}

// DeepSeek V3.2. The indexer selects fewer positions than a long prompt has.
LatentShape tiny_sparse() {
  LatentShape shape = tiny_deepseek();
  shape.architecture = "deepseek32";
  shape.name = "tiny-deepseek-v3.2-random";
  shape.index_heads = 8;
  shape.index_head = 128;
  shape.index_top = 256;
  return shape;
}

LatentShape tiny_glm_sparse() {
  LatentShape shape = tiny_sparse();
  shape.architecture = "glm-dsa";
  shape.name = "tiny-glm-dsa-random";
  shape.pre = "glm4";
  shape.context = 202752;
  shape.heads = 8;
  shape.nope = 96;
  shape.value = 128;
  shape.groups = shape.groups_used = 1;
  shape.rope_base = 1000000.0F;
  shape.yarn_factor = 0.0F;
  return shape;
}

// GLM 5.2: some layers use the positions that the last layer with an indexer selected.
LatentShape tiny_glm_shared() {
  LatentShape shape = tiny_glm_sparse();
  shape.name = "tiny-glm-dsa-shared-random";
  shape.layers = 4;
  shape.dense_layers = 2;
  shape.expert_columns = 768;
  shape.context = 1048576;
  shape.index_layers = {true, false, true, false};
  return shape;
}

}  // namespace

std::vector<Kind> deepseek_kinds() {
  using Given = const Options&;
  return {
      {"tiny-ds", "DeepSeek V3: latent attention, 8 experts in 4 groups, one shared, YaRN; --mtp",
       [](Given options) { return make_latent(tiny_deepseek(), kHalf, options); }},
      {"tiny-kimi", "Kimi K2: latent attention, 16 experts without groups, a shared one, YaRN",
       [](Given options) { return make_latent(tiny_kimi(), kHalf, options); }},
      {"tiny-ds-v2", "DeepSeek V2: softmax scores, not made to sum to 1, no groups",
       [](Given options) { return make_latent(tiny_second(), kHalf, options); }},
      {"tiny-ds-lite", "DeepSeek V2 Lite: 27 narrow layers, queries without a low rank",
       [](Given options) { return make_latent(tiny_lite(), kHalf, options); }},
      {"tiny-ds-old", "The same as older converters wrote it: one matrix of keys and values",
       [](Given options) { return make_latent(tiny_old(), kHalf, options); }},
      {"tiny-moonlight", "Moonlight: sigmoid scores, queries without a low rank, no YaRN",
       [](Given options) { return make_latent(tiny_moonlight(), kHalf, options); }},
      {"tiny-ds32", "DeepSeek V3.2: an indexer selects 256 positions",
       [](Given options) { return make_latent(tiny_sparse(), kHalf, options); }},
      {"tiny-glm-dsa", "GLM 5: an indexer in every layer selects 256 positions",
       [](Given options) { return make_latent(tiny_glm_sparse(), kHalf, options); }},
      {"tiny-glm-dsa-shared", "GLM 5.2: every second layer uses what the layer before selected",
       [](Given options) { return make_latent(tiny_glm_shared(), kHalf, options); }},
      {"k2cut", "Kimi K2's shapes, 5 layers of 40 experts in Q4_K, about 5 GB",
       [](Given options) {
         return make_latent(k2_cut(),
                            {TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ4_K,
                             TensorType::kQ4_K, TensorType::kQ4_0},
                            options);
       }},
  };
}

}  // namespace sinew::generate
