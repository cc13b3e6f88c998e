#include "weights.h"

#include <array>

namespace sinew::generate {
namespace {

// Nine, so that neither the matrices of a layer (7, 8, 11, 14) nor the layers repeat in step.
constexpr std::array kMixedTypes{TensorType::kQ4_K, TensorType::kQ6_K,   TensorType::kQ2_K,
                                 TensorType::kQ5_K, TensorType::kIQ4_XS, TensorType::kQ8_0,
                                 TensorType::kQ3_K, TensorType::kF16,    TensorType::kIQ3_S};

}  // namespace

Types chosen(const Options& options, const Types& usual) {
  Types types = usual;
  if (options.type) types = Types::all(*options.type);
  if (options.mixed) types = {};
  if (options.attention_type) types.attention = options.attention_type;
  if (options.expert_type)
    types.feed_forward = types.experts = types.experts_down = options.expert_type;
  return types;
}

void Weights::matrix(std::string name, std::vector<std::uint64_t> shape, Types::Choice type,
                     float deviation) {
  const TensorType wanted = type ? *type : kMixedTypes[mixed_++ % kMixedTypes.size()];
  const TensorType stored = fitting(name, shape.front(), wanted);
  recipe_.weights.push_back(
      {std::move(name), std::move(shape), stored, Draw::kNormal, 0.0F, deviation});
}

// Rows shorter than a block of `type` are stored as Q8_0 or F16, as llama.cpp's quantiser does in
// such a case; the user is told.
TensorType Weights::fitting(const std::string& name, std::uint64_t row, TensorType type) {
  const auto fits = [row](TensorType candidate) {
    return row % tensor_type_traits(candidate)->block_length == 0;
  };
  if (fits(type)) return type;
  const TensorType stored = fits(TensorType::kQ8_0) ? TensorType::kQ8_0 : TensorType::kF16;
  recipe_.notes.push_back(
      fmt::format("{} is stored as {}: its rows of {} elements are no multiple of a block of {}",
                  name, tensor_type_traits(stored)->name, row, tensor_type_traits(type)->name));
  return stored;
}

Result<std::uint32_t> add_vocabulary(const Options& options, std::string_view pre,
                                     std::uint32_t size, test::GgufWriter& header) {
  if (options.vocabulary != nullptr) return copy_vocabulary(*options.vocabulary, header);
  write_vocabulary(pre, size, header);
  return size;
}

void add_ends(Weights& weights, std::uint32_t hidden, std::uint32_t vocabulary, bool tied,
              Types::Choice type) {
  if (tied) {
    // Half of the output's gain each: behind a wide embedding each token would predict itself, and
    // behind a narrow one the biases of the layers would predict the same few.
    const float half = std::sqrt(kOutputGain);
    weights.matrix("token_embd.weight", {hidden, vocabulary}, type, half * fan_in(hidden));
    weights.norm("output_norm.weight", hidden, half);
    return;
  }
  weights.matrix("token_embd.weight", {hidden, vocabulary}, type, 1.0F);
  weights.norm("output_norm.weight", hidden);
  weights.matrix("output.weight", {hidden, vocabulary}, type, kOutputGain * fan_in(hidden));
}

void add_grouped_attention(Weights& weights, const std::string& block,
                           const GroupedAttention& attention, Types::Choice type) {
  const std::uint32_t hidden = attention.hidden;
  const std::uint32_t queries = attention.heads * attention.head;
  const std::uint32_t keys = attention.kv_heads * attention.head;
  const bool normed = attention.norm != HeadNorm::kNone;
  const float in = fan_in(hidden);
  weights.norm(block + "attn_norm.weight", hidden);
  weights.matrix(block + "attn_q.weight", {hidden, queries}, type, normed ? in : kQueryGain * in);
  weights.matrix(block + "attn_k.weight", {hidden, keys}, type, in);
  weights.matrix(block + "attn_v.weight", {hidden, keys}, type, in);
  if (attention.biases) {
    weights.floats(block + "attn_q.bias", {queries}, kBiasDeviation);
    weights.floats(block + "attn_k.bias", {keys}, kBiasDeviation);
    weights.floats(block + "attn_v.bias", {keys}, kBiasDeviation);
  }
  if (normed) {
    const bool all = attention.norm == HeadNorm::kAllHeads;
    weights.norm(block + "attn_q_norm.weight", all ? queries : attention.head, kQueryGain);
    weights.norm(block + "attn_k_norm.weight", all ? keys : attention.head);
  }
  weights.matrix(block + "attn_output.weight", {queries, hidden}, type, fan_in(queries));
}

void add_feed_forward(Weights& weights, const std::string& block, std::string_view suffix,
                      std::uint32_t hidden, std::uint32_t columns, Types::Choice type) {
  const auto name = [&](std::string_view part) {
    return fmt::format("{}ffn_{}{}.weight", block, part, suffix);
  };
  weights.matrix(name("gate"), {hidden, columns}, type, fan_in(hidden));
  weights.matrix(name("up"), {hidden, columns}, type, fan_in(hidden));
  weights.matrix(name("down"), {columns, hidden}, type, fan_in(columns));
}

void add_experts(Weights& weights, const std::string& block, const Experts& experts,
                 const Types& types) {
  const auto [hidden, columns, count, selection_bias] = experts;
  weights.floats(block + "ffn_gate_inp.weight", {hidden, count}, fan_in(hidden));
  if (selection_bias) weights.floats(block + "exp_probs_b.bias", {count}, kRouterBiasDeviation);
  weights.matrix(block + "ffn_gate_exps.weight", {hidden, columns, count}, types.experts,
                 fan_in(hidden));
  weights.matrix(block + "ffn_up_exps.weight", {hidden, columns, count}, types.experts,
                 fan_in(hidden));
  weights.matrix(block + "ffn_down_exps.weight", {columns, hidden, count}, types.experts_down,
                 fan_in(columns));
}

void add_next_token_parts(Weights& weights, const std::string& block, std::uint32_t hidden,
                          Types::Choice type) {
  weights.matrix(block + "nextn.eh_proj.weight", {2 * hidden, hidden}, type, fan_in(2 * hidden));
  weights.norm(block + "nextn.enorm.weight", hidden);
  weights.norm(block + "nextn.hnorm.weight", hidden);
  weights.norm(block + "nextn.shared_head_norm.weight", hidden);
}

Status check_options(const Options& options, const Understood& understood) {
  const auto refuse = [](std::string_view flag) {
    return fail(ErrorCode::kUsage, "{}: this kind of model has no such thing; leave the option out",
                flag);
  };
  if (options.experts && !understood.experts) return refuse("--experts");
  if (options.tied && !understood.tied) return refuse("--tied");
  if (options.prediction_layer && !understood.prediction_layer) return refuse("--mtp");
  if (options.head_norms && !understood.head_norms) return refuse("--qk-norm");
  return {};
}

Result<std::uint32_t> expert_count(const Options& options, std::uint32_t usual, std::uint32_t used,
                                   std::uint32_t groups) {
  constexpr std::uint32_t kExpertsMax = 1024;  // llama.cpp's limit
  const std::uint32_t experts = options.experts.value_or(usual);
  const std::uint32_t fewest = groups > 1 ? 2 * groups : used;
  if (experts < fewest || experts > kExpertsMax || experts % groups != 0)
    return fail(ErrorCode::kUsage, "--experts {}: choose a multiple of {} from {} to {}", experts,
                groups, fewest, kExpertsMax);
  return experts;
}

}  // namespace sinew::generate
