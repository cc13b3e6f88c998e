#pragma once

#include <memory>

#include "model/slice.h"
#include "model/spec.h"
#include "model/tensor_decl.h"
#include "support/gguf_writer.h"

namespace sinew::test {

// Shapes to start from; tests change what they are about.
inline ModelSpec tiny_llama_spec() {
  ModelSpec spec;
  spec.family = Family::kLlama;
  spec.architecture = "llama";
  spec.name = "tiny";
  spec.layers = 2;
  spec.embedding = 64;
  spec.vocabulary = 96;
  spec.context_trained = 128;
  spec.heads = 8;
  spec.kv_heads = 4;
  spec.key_dimensions = spec.value_dimensions = 32;
  spec.feed_forward = 256;
  spec.rope.dimensions = 32;
  return spec;
}
inline ModelSpec tiny_deepseek_spec() {
  ModelSpec spec = tiny_llama_spec();
  spec.family = Family::kDeepseek2;
  spec.architecture = "deepseek2";
  spec.kv_heads = spec.heads;
  spec.rope.dimensions = 16;
  spec.latent.query_rank = 64;
  spec.latent.kv_rank = 32;
  spec.latent.nope_dimensions = 16;
  spec.experts.count = 4;
  spec.experts.used = 2;
  spec.experts.columns = 128;
  spec.experts.shared = 1;
  spec.experts.dense_layers = 1;
  return spec;
}

// Both layers have an indexer of their own; those of glm-dsa may share one.
inline ModelSpec tiny_sparse_spec(const std::string& architecture) {
  ModelSpec spec = tiny_deepseek_spec();
  spec.family = Family::kDeepseek32;
  spec.architecture = architecture;
  spec.experts.gating = ExpertSpec::Gating::kSigmoid;
  spec.indexer.heads = 4;
  spec.indexer.dimensions = 32;
  spec.indexer.chosen = 16;
  spec.indexer.layers.assign(static_cast<std::size_t>(spec.layers), true);
  return spec;
}

// A model of grouped-query attention of any other architecture; `experts` of them in each layer, or
// none.
inline ModelSpec tiny_grouped_spec(const std::string& architecture, Family family, int experts) {
  ModelSpec spec = tiny_llama_spec();
  spec.family = family;
  spec.architecture = architecture;
  if (experts == 0) return spec;
  spec.experts.count = experts;
  spec.experts.used = 2;
  spec.experts.columns = 128;
  return spec;
}
// One model of every architecture.
inline std::vector<ModelSpec> tiny_specs() {
  ModelSpec glm = tiny_grouped_spec("glm4moe", Family::kGlm4Moe, 4);
  glm.experts.shared = 1;
  glm.experts.dense_layers = 1;
  ModelSpec gpt = tiny_grouped_spec("gpt-oss", Family::kGptOss, 4);
  gpt.window.size = 16;
  gpt.window.layers = {true, false};
  ModelSpec gemma = tiny_grouped_spec("gemma3", Family::kGemma3, 0);
  gemma.tied_output = true;
  gemma.window.size = 16;
  gemma.window.layers = {true, true};
  ModelSpec old_layout = tiny_deepseek_spec();
  old_layout.latent.expanded = true;
  old_layout.latent.query_rank = 0;
  return {tiny_llama_spec(),
          tiny_grouped_spec("llama", Family::kLlama, 4),
          tiny_grouped_spec("qwen2", Family::kQwen2, 0),
          tiny_grouped_spec("qwen3", Family::kQwen3, 0),
          tiny_grouped_spec("qwen3moe", Family::kQwen3, 4),
          glm,
          gpt,
          tiny_grouped_spec("minimax-m2", Family::kMiniMax, 4),
          gemma,
          tiny_deepseek_spec(),
          old_layout,
          tiny_sparse_spec("deepseek32"),
          tiny_sparse_spec("glm-dsa")};
}

// The metadata that `read_spec` reads such a spec from.
inline GgufWriter tiny_metadata(const ModelSpec& spec) {
  GgufWriter writer;
  const auto add = [&](const char* key, int value) {
    writer.add(spec.architecture + "." + key, static_cast<std::uint32_t>(value));
  };
  writer.add("general.architecture", spec.architecture).add("general.name", spec.name);
  add("block_count", spec.layers);
  add("embedding_length", spec.embedding);
  add("context_length", static_cast<int>(spec.context_trained));
  add("attention.head_count", spec.heads);
  add("feed_forward_length", spec.feed_forward);
  add("rope.dimension_count", spec.rope.dimensions);
  const bool is_latent = spec.latent.kv_rank > 0;
  const bool is_mla = is_latent && !spec.latent.expanded;
  add(is_mla ? "attention.key_length_mla" : "attention.key_length", spec.key_dimensions);
  add(is_mla ? "attention.value_length_mla" : "attention.value_length", spec.value_dimensions);
  if (!is_latent) add("attention.head_count_kv", spec.kv_heads);
  if (is_latent && spec.latent.query_rank > 0) add("attention.q_lora_rank", spec.latent.query_rank);
  if (is_latent) add("attention.kv_lora_rank", spec.latent.kv_rank);
  if (spec.window.size > 0) add("attention.sliding_window", spec.window.size);
  if (spec.indexer.heads > 0) {
    add("attention.indexer.head_count", spec.indexer.heads);
    add("attention.indexer.key_length", spec.indexer.dimensions);
    add("attention.indexer.top_k", spec.indexer.chosen);
    add("expert_gating_func", 2);
  }
  if (!spec.indexer.layers.empty() && spec.architecture == "glm-dsa")
    writer.add("glm-dsa.attention.indexer.types", spec.indexer.layers);
  if (spec.experts.count == 0) return writer;
  add("expert_count", spec.experts.count);
  add("expert_used_count", spec.experts.used);
  add("expert_feed_forward_length", spec.experts.columns);
  add("expert_shared_count", spec.experts.shared);
  add("leading_dense_block_count", spec.experts.dense_layers);
  return writer;
}

// A declared tensor as a file has it: matrices in `type` where their rows are whole blocks of it.
inline TensorType stored_type(const TensorDecl& decl, TensorType type) {
  if (decl.float_only) return TensorType::kF32;
  const bool fits = decl.shape[0] % tensor_type_traits(type)->block_length == 0;
  return fits ? type : TensorType::kF16;
}
inline std::vector<std::uint64_t> stored_shape(const TensorDecl& decl) {
  std::vector<std::uint64_t> shape(decl.shape.begin(), decl.shape.end());
  while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
  return shape;
}

// A model file in memory, read and bound. Stays where it was made: the tensors point into it.
struct TinyModel {
  Bytes file;
  GgufModel directory;
  ModelSpec spec;
  std::vector<BoundTensor> tensors;

  static Result<std::unique_ptr<TinyModel>> from_file(Bytes file) {
    auto model = std::make_unique<TinyModel>();
    model->file = std::move(file);
    const GgufPart part{"tiny.gguf", model->file};
    SINEW_ASSIGN(model->directory, GgufModel::parse(std::span(&part, 1)));
    SINEW_ASSIGN(model->spec, read_spec(model->directory));
    SINEW_ASSIGN(model->tensors, bind_tensors(model->spec, model->directory));
    return model;
  }
  // All tensors zero.
  static Result<std::unique_ptr<TinyModel>> make(const ModelSpec& spec, TensorType type) {
    GgufWriter writer = tiny_metadata(spec);
    for (const TensorDecl& decl : declare_tensors(spec))
      if (decl.source.empty())
        writer.tensor(decl.name, stored_type(decl, type), stored_shape(decl));
    return from_file(writer.bytes());
  }
};

}  // namespace sinew::test
