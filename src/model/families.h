#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/spec_reader.h"
#include "model/tensor_decl.h"

namespace sinew {

class TensorTable;

// What an architecture of files means: which family runs it, how its keys are read, which tensors
// it has. One file per family (model/llama.cpp, ...).
struct Architecture {
  std::string_view name;  // general.architecture
  Family family;
  void (*read)(SpecReader& reader, ModelSpec& spec);
  void (*declare)(const ModelSpec& spec, TensorTable& table);
};
// Null if no family serves it.
const Architecture* find_architecture(std::string_view name);
std::string architecture_names();

void read_llama(SpecReader& reader, ModelSpec& spec);
void declare_llama(const ModelSpec& spec, TensorTable& table);
void read_qwen2(SpecReader& reader, ModelSpec& spec);
void declare_qwen2(const ModelSpec& spec, TensorTable& table);
void read_qwen3(SpecReader& reader, ModelSpec& spec);
void read_qwen3moe(SpecReader& reader, ModelSpec& spec);
void declare_qwen3(const ModelSpec& spec, TensorTable& table);
void read_glm4moe(SpecReader& reader, ModelSpec& spec);
void declare_glm4moe(const ModelSpec& spec, TensorTable& table);
void read_gpt_oss(SpecReader& reader, ModelSpec& spec);
void declare_gpt_oss(const ModelSpec& spec, TensorTable& table);
void read_minimax(SpecReader& reader, ModelSpec& spec);
void declare_minimax(const ModelSpec& spec, TensorTable& table);
void read_gemma3(SpecReader& reader, ModelSpec& spec);
void declare_gemma3(const ModelSpec& spec, TensorTable& table);
void read_deepseek2(SpecReader& reader, ModelSpec& spec);
void declare_deepseek2(const ModelSpec& spec, TensorTable& table);
void read_deepseek32(SpecReader& reader, ModelSpec& spec);
void read_glm_dsa(SpecReader& reader, ModelSpec& spec);
void declare_deepseek32(const ModelSpec& spec, TensorTable& table);

// A tensor table under construction. Rows belong to the layer begun last, by whose number their
// names are prefixed ("blk.3."). The row returned may be changed until the next one is added.
class TensorTable {
 public:
  explicit TensorTable(const ModelSpec& spec) : spec_(spec) {}

  // Embedding, final norm and output layer, which all families share.
  void ends();
  void begin_layer(int layer) { layer_ = layer; }

  // A norm or a bias, whole on every rank.
  TensorDecl& vector(std::string_view name, std::int64_t size);
  // A norm or a bias of which each index of `dimension` owns `elements`.
  TensorDecl& split_vector(std::string_view name, std::int64_t size, Dimension dimension,
                           std::int64_t elements = 1);
  TensorDecl& mirrored(std::string_view name, std::int64_t inputs, std::int64_t outputs);
  // A matrix split by its outputs: each rank computes its own part of the result.
  TensorDecl& by_outputs(std::string_view name, std::int64_t inputs, std::int64_t outputs,
                         Dimension dimension, std::int64_t elements = 1);
  // A matrix split by its inputs: each rank computes a partial sum.
  TensorDecl& by_inputs(std::string_view name, std::int64_t inputs, std::int64_t outputs,
                        Dimension dimension, std::int64_t elements = 1);
  // Matrices of heads, [inputs, outputs, heads].
  TensorDecl& by_head(std::string_view name, std::int64_t inputs, std::int64_t outputs);

  // Gate, up and down projections of a gated feed-forward: "ffn_gate<suffix>.weight", ...
  void feed_forward(std::string_view suffix, std::int64_t columns, Dimension dimension);

  std::vector<TensorDecl> take() { return std::move(rows_); }

 private:
  TensorDecl& add(std::string_view name, std::array<std::int64_t, 4> shape);

  const ModelSpec& spec_;  // outlives the table
  int layer_ = -1;
  std::vector<TensorDecl> rows_;
};

enum class Need : std::uint8_t { kNone, kOptional, kRequired };
struct AttentionNeeds {
  Need bias = Need::kNone;         // of queries, keys and values
  Need output_bias = Need::kNone;  // of the output projection
  Need head_norms = Need::kNone;   // norms of each head's query and key
};
// Norm before, queries, keys, values and output of grouped-query attention.
void declare_grouped_attention(const ModelSpec& spec, const AttentionNeeds& needs,
                               TensorTable& table);
// Heads, dimensions, rotation and scale of multi-head latent attention.
void read_latent_attention(SpecReader& reader, ModelSpec& spec);
// Norms and projections of one layer of it.
void declare_latent_attention(const ModelSpec& spec, TensorTable& table);
struct ExpertNeeds {
  Need choice_bias = Need::kNone;  // takes part in the choice of experts, not in their weights
  Need biases = Need::kNone;       // of the router and of every projection
};
// Router, experts and shared expert of one layer.
void declare_experts(const ModelSpec& spec, const ExpertNeeds& needs, TensorTable& table);

}  // namespace sinew
