#include "model/families.h"

namespace sinew {
namespace {

void read_indexer(SpecReader& reader, ModelSpec& spec, bool neox) {
  IndexerSpec& indexer = spec.indexer;
  indexer.heads = reader.dimension("attention.indexer.head_count");
  indexer.dimensions = reader.dimension("attention.indexer.key_length");
  indexer.chosen = reader.dimension("attention.indexer.top_k");
  indexer.layers.assign(static_cast<std::size_t>(spec.layers), true);
  indexer.rope = spec.rope;
  indexer.rope.neox = neox;
  if (spec.rope.dimensions > indexer.dimensions)
    reader.reject("attention.indexer.key_length", "is smaller than rope.dimension_count");
}

// What both families need and DeepSeek V3 may do without: the indexer's queries come from the
// low-rank form of the queries, and all heads attend to one latent.
void read_sparse(SpecReader& reader, ModelSpec& spec) {
  read_latent_attention(reader, spec);
  if (spec.latent.query_rank == 0)
    reader.reject("attention.q_lora_rank", "is missing or 0, but the indexer needs it");
  if (spec.latent.expanded)
    reader.reject("attention.key_length_mla",
                  "is missing; the file keeps keys and values in one matrix, convert it with a "
                  "current llama.cpp");
  spec.feed_forward = reader.dimension("feed_forward_length");
}

// GLM 5.2's layers with an indexer of their own, for files without the list: the first two, then
// every fourth (the model's config.json, indexer_types).
constexpr std::int64_t kSharingContext = 1048576;
constexpr int kSharingBegin = 2;
constexpr int kSharingPeriod = 4;

std::vector<bool> default_layers(const ModelSpec& spec) {
  std::vector<bool> layers;
  for (int layer = 0; layer < spec.layers; ++layer)
    layers.push_back(spec.context_trained < kSharingContext || layer < kSharingBegin ||
                     (layer - kSharingBegin) % kSharingPeriod == 0);
  return layers;
}

}  // namespace

// DeepSeek V3.2: V3 with an indexer in every layer, which pairs the elements that turn together as
// GPT-NeoX does.
void read_deepseek32(SpecReader& reader, ModelSpec& spec) {
  read_sparse(reader, spec);
  read_indexer(reader, spec, true);
  if (!reader.has("expert_gating_func")) reader.reject("expert_gating_func", "is missing");
  spec.experts = read_experts(reader, spec, {});
  if (spec.experts.count == 0) reader.reject("expert_count", "is missing or 0");
}

// GLM 5: the same with neighbours that turn together. From 5.2 on only some layers have an indexer
// of their own.
void read_glm_dsa(SpecReader& reader, ModelSpec& spec) {
  read_sparse(reader, spec);
  read_indexer(reader, spec, false);
  const char* types = "attention.indexer.types";
  if (reader.has(types)) {
    spec.indexer.layers = reader.flags(types, spec.layers);
    if (spec.indexer.layers.empty()) reader.reject(types, "is no list of the layers");
  } else {
    spec.indexer.layers = default_layers(spec);
  }
  if (!spec.indexer.layers.empty() && !spec.indexer.layers.front())
    reader.reject(types, "says that the first layer uses what a layer before it has chosen");
  spec.experts = read_experts(reader, spec, {.gating = ExpertSpec::Gating::kSigmoid});
  if (spec.experts.count == 0) reader.reject("expert_count", "is missing or 0");
}

void declare_deepseek32(const ModelSpec& spec, TensorTable& table) {
  const IndexerSpec& indexer = spec.indexer;
  table.ends();
  for (int layer = 0; layer < spec.layers; ++layer) {
    table.begin_layer(layer);
    declare_latent_attention(spec, table);
    // Mirrored: every rank with heads chooses for itself, from the same bits.
    if (spec.indexes(layer)) {
      table.vector("indexer.k_norm.weight", indexer.dimensions);
      table.vector("indexer.k_norm.bias", indexer.dimensions);
      table.mirrored("indexer.proj.weight", spec.embedding, indexer.heads);
      table.mirrored("indexer.attn_k.weight", spec.embedding, indexer.dimensions);
      table.mirrored("indexer.attn_q_b.weight", spec.latent.query_rank,
                     std::int64_t{indexer.heads} * indexer.dimensions);
    }
    table.vector("ffn_norm.weight", spec.embedding);
    if (spec.dense(layer))
      table.feed_forward("", spec.feed_forward, Dimension::kFeedForward);
    else
      declare_experts(spec, {.choice_bias = Need::kOptional}, table);
  }
}

}  // namespace sinew
