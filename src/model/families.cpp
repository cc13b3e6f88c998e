#include "model/families.h"

#include <algorithm>
#include <array>

namespace sinew {
namespace {

constexpr std::array kArchitectures{
    Architecture{"llama", Family::kLlama, read_llama, declare_llama},
    Architecture{"qwen2", Family::kQwen2, read_qwen2, declare_qwen2},
    Architecture{"qwen3", Family::kQwen3, read_qwen3, declare_qwen3},
    Architecture{"qwen3moe", Family::kQwen3, read_qwen3moe, declare_qwen3},
    Architecture{"glm4moe", Family::kGlm4Moe, read_glm4moe, declare_glm4moe},
    Architecture{"gpt-oss", Family::kGptOss, read_gpt_oss, declare_gpt_oss},
    Architecture{"minimax-m2", Family::kMiniMax, read_minimax, declare_minimax},
    Architecture{"gemma3", Family::kGemma3, read_gemma3, declare_gemma3},
    Architecture{"deepseek2", Family::kDeepseek2, read_deepseek2, declare_deepseek2},
    Architecture{"deepseek32", Family::kDeepseek32, read_deepseek32, declare_deepseek32},
    Architecture{"glm-dsa", Family::kDeepseek32, read_glm_dsa, declare_deepseek32},
};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  const auto* found =
      std::find_if(kArchitectures.begin(), kArchitectures.end(),
                   [&](const Architecture& architecture) { return architecture.name == name; });
  return found == kArchitectures.end() ? nullptr : found;
}

std::string architecture_names() {
  std::string list;
  for (const Architecture& architecture : kArchitectures)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", architecture.name);
  return list;
}

TensorDecl& TensorTable::add(std::string_view name, std::array<std::int64_t, 4> shape) {
  TensorDecl decl;
  decl.name = layer_ < 0 ? std::string(name) : fmt::format("blk.{}.{}", layer_, name);
  decl.shape = shape;
  if (layer_ >= 0) {
    decl.place = Place::kLayer;
    decl.layer = layer_;
  }
  rows_.push_back(std::move(decl));
  return rows_.back();
}

TensorDecl& TensorTable::vector(std::string_view name, std::int64_t size) {
  TensorDecl& decl = add(name, {size, 1, 1, 1});
  decl.float_only = true;
  decl.use = TensorUse::kOther;
  return decl;
}

TensorDecl& TensorTable::split_vector(std::string_view name, std::int64_t size, Dimension dimension,
                                      std::int64_t elements) {
  TensorDecl& decl = vector(name, size);
  decl.split = SplitRule{false, dimension, 0, elements};
  return decl;
}

TensorDecl& TensorTable::mirrored(std::string_view name, std::int64_t inputs,
                                  std::int64_t outputs) {
  return add(name, {inputs, outputs, 1, 1});
}

TensorDecl& TensorTable::by_outputs(std::string_view name, std::int64_t inputs,
                                    std::int64_t outputs, Dimension dimension,
                                    std::int64_t elements) {
  TensorDecl& decl = add(name, {inputs, outputs, 1, 1});
  decl.split = SplitRule{false, dimension, 1, elements};
  return decl;
}

TensorDecl& TensorTable::by_inputs(std::string_view name, std::int64_t inputs, std::int64_t outputs,
                                   Dimension dimension, std::int64_t elements) {
  TensorDecl& decl = add(name, {inputs, outputs, 1, 1});
  decl.split = SplitRule{false, dimension, 0, elements};
  return decl;
}

TensorDecl& TensorTable::by_head(std::string_view name, std::int64_t inputs, std::int64_t outputs) {
  TensorDecl& decl = add(name, {inputs, outputs, spec_.heads, 1});
  decl.split = SplitRule{false, Dimension::kHeads, 2, 1};
  decl.use = TensorUse::kOther;
  return decl;
}

void TensorTable::ends() {
  TensorDecl& embedding =
      by_outputs("token_embd.weight", spec_.embedding, spec_.vocabulary, Dimension::kVocabulary);
  embedding.use = TensorUse::kOther;
  embedding.place = Place::kFirstStage;
  vector("output_norm.weight", spec_.embedding).place = Place::kLastStage;
  TensorDecl& output =
      by_outputs("output.weight", spec_.embedding, spec_.vocabulary, Dimension::kVocabulary);
  output.place = Place::kLastStage;
  if (spec_.tied_output) output.source = "token_embd.weight";
}

void TensorTable::feed_forward(std::string_view suffix, std::int64_t columns, Dimension dimension) {
  by_outputs(fmt::format("ffn_gate{}.weight", suffix), spec_.embedding, columns, dimension);
  by_outputs(fmt::format("ffn_up{}.weight", suffix), spec_.embedding, columns, dimension);
  by_inputs(fmt::format("ffn_down{}.weight", suffix), columns, spec_.embedding, dimension);
}

void declare_grouped_attention(const ModelSpec& spec, const AttentionNeeds& needs,
                               TensorTable& table) {
  const std::int64_t embedding = spec.embedding;
  const std::int64_t query = spec.key_dimensions;
  const std::int64_t value = spec.value_dimensions;
  const std::int64_t per_group = spec.heads / spec.kv_heads;
  table.vector("attn_norm.weight", embedding);
  table.by_outputs("attn_q.weight", embedding, spec.heads * query, Dimension::kHeads,
                   per_group * query);
  table.by_outputs("attn_k.weight", embedding, spec.kv_heads * query, Dimension::kHeads, query);
  table.by_outputs("attn_v.weight", embedding, spec.kv_heads * value, Dimension::kHeads, value);
  table.by_inputs("attn_output.weight", spec.heads * value, embedding, Dimension::kHeads,
                  per_group * value);
  if (needs.bias != Need::kNone) {
    const bool required = needs.bias == Need::kRequired;
    table.split_vector("attn_q.bias", spec.heads * query, Dimension::kHeads, per_group * query)
        .required = required;
    table.split_vector("attn_k.bias", spec.kv_heads * query, Dimension::kHeads, query).required =
        required;
    table.split_vector("attn_v.bias", spec.kv_heads * value, Dimension::kHeads, value).required =
        required;
  }
  if (needs.output_bias != Need::kNone)
    table.vector("attn_output.bias", embedding).required = needs.output_bias == Need::kRequired;
  if (needs.head_norms != Need::kNone) {
    const bool required = needs.head_norms == Need::kRequired;
    table.vector("attn_q_norm.weight", query).required = required;
    table.vector("attn_k_norm.weight", query).required = required;
  }
}

void declare_experts(const ModelSpec& spec, const ExpertNeeds& needs, TensorTable& table) {
  const ExpertSpec& experts = spec.experts;
  table.mirrored("ffn_gate_inp.weight", spec.embedding, experts.count);
  if (needs.choice_bias != Need::kNone)
    table.vector("exp_probs_b.bias", experts.count).required = needs.choice_bias == Need::kRequired;

  const auto stacked = [&](TensorDecl& decl, int axis) -> TensorDecl& {
    decl.shape[static_cast<std::size_t>(axis)] = experts.count;
    decl.expert_axis = axis;
    return decl;
  };
  for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight"})
    stacked(table.by_outputs(name, spec.embedding, experts.columns, Dimension::kExpertColumns), 2)
        .use = TensorUse::kExperts;
  stacked(table.by_inputs("ffn_down_exps.weight", experts.columns, spec.embedding,
                          Dimension::kExpertColumns),
          2)
      .use = TensorUse::kExperts;

  if (needs.biases != Need::kNone) {
    const bool required = needs.biases == Need::kRequired;
    table.vector("ffn_gate_inp.bias", experts.count).required = required;
    for (const char* name : {"ffn_gate_exps.bias", "ffn_up_exps.bias"})
      stacked(table.split_vector(name, experts.columns, Dimension::kExpertColumns), 1).required =
          required;
    // Added after ranks have agreed, so every rank needs all of it.
    TensorDecl& down = table.vector("ffn_down_exps.bias", spec.embedding);
    down.shape[1] = experts.count;
    down.required = required;
  }
  if (experts.shared > 0)
    table.feed_forward("_shexp", std::int64_t{experts.shared} * experts.columns,
                       Dimension::kSharedColumns);
}

}  // namespace sinew
