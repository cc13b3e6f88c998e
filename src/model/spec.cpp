#include "model/spec.h"

#include <cmath>
#include <limits>

#include "base/limits.h"

namespace sinew {
namespace {

constexpr std::int64_t kDimensionMax = 1 << 20;

// Reads `<architecture>.<key>` and keeps the first error, so that a family's reader stays a plain
// list.
class SpecReader {
 public:
  SpecReader(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

  int dimension(const std::string& key, std::int64_t low = 1) {
    return bounded(metadata_.integer(prefix_ + key), key, low);
  }
  int dimension_or(const std::string& key, std::int64_t fallback, std::int64_t low = 0) {
    return bounded(metadata_.integer_or(prefix_ + key, fallback), key, low);
  }
  std::int64_t integer_or(const std::string& key, std::int64_t fallback) {
    return keep(metadata_.integer_or(prefix_ + key, fallback));
  }
  float real_or(const std::string& key, double fallback) {
    const double value = keep(metadata_.real_or(prefix_ + key, fallback));
    if (!std::isfinite(value)) reject(key, "is not a finite number");
    return static_cast<float>(value);
  }
  bool boolean_or(const std::string& key, bool fallback) {
    return keep(metadata_.boolean_or(prefix_ + key, fallback));
  }
  std::string string_or(const std::string& key, const std::string& fallback) {
    return keep(metadata_.string_or(prefix_ + key, fallback));
  }
  bool has(const std::string& key) const { return metadata_.has(prefix_ + key); }
  void reject(const std::string& key, std::string_view why) {
    if (status_)
      status_ = fail(ErrorCode::kInvalidFile, "{}: {}{} {}", metadata_.file(), prefix_, key, why);
  }
  void unsupported(std::string_view why) {
    if (status_) status_ = fail(ErrorCode::kUnsupported, "{}: {}", metadata_.file(), why);
  }
  Status status() const { return status_; }

 private:
  int bounded(Result<std::int64_t> value, const std::string& key, std::int64_t low) {
    const std::int64_t number = keep(std::move(value));
    if (status_ && (number < low || number > kDimensionMax)) {
      reject(key, fmt::format("is {}, outside {} .. {}", number, low, kDimensionMax));
    }
    // After an error no value counts, but families go on to divide by some of them.
    return status_ ? static_cast<int>(number) : 1;
  }
  template <typename T>
  T keep(Result<T> value) {
    if (value) return *std::move(value);
    if (status_) status_ = fail(std::move(value).error());
    return T{};
  }

  const Metadata& metadata_;
  std::string prefix_;
  Status status_;
};

// The rotary part of the metadata; which of its keys matter depends on rope.scaling.type.
RopeSpec read_rope(SpecReader& reader, std::int64_t context, int dimensions) {
  RopeSpec rope;
  rope.dimensions = reader.dimension_or("rope.dimension_count", dimensions, 1);
  if (rope.dimensions % 2 != 0) reader.reject("rope.dimension_count", "is odd");
  rope.base = reader.real_or("rope.freq_base", 10000.0);
  if (rope.base <= 0) reader.reject("rope.freq_base", "is not positive");
  const std::string scaling = reader.string_or("rope.scaling.type", "linear");
  const float old_factor = reader.real_or("rope.scale_linear", 0.0);
  const float factor = reader.real_or("rope.scaling.factor", old_factor);
  if (factor < 0) reader.reject("rope.scaling.factor", "is negative");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn")
    reader.unsupported(
        fmt::format("rope scaling '{}' is not implemented (none, linear and yarn are)", scaling));
  if (scaling != "none" && factor > 0) rope.scale = 1.0F / factor;
  if (scaling == "yarn") rope.extrapolation = reader.real_or("rope.scaling.yarn_ext_factor", 1.0);
  rope.beta_fast = reader.real_or("rope.scaling.yarn_beta_fast", 32.0);
  rope.beta_slow = reader.real_or("rope.scaling.yarn_beta_slow", 1.0);
  rope.original_context =
      static_cast<int>(reader.integer_or("rope.scaling.original_context_length", context));
  // ggml multiplies by 1 + 0.1 ln(1/scale) itself when it extrapolates, which is YaRN's own factor
  // for models that declare no other: so 1 stays 1.
  rope.attention_factor = reader.real_or("rope.scaling.attn_factor", 1.0);
  return rope;
}

void read_llama(SpecReader& reader, ModelSpec& spec) {
  spec.heads = reader.dimension("attention.head_count");
  spec.kv_heads = reader.dimension_or("attention.head_count_kv", spec.heads, 1);
  if (spec.heads % spec.kv_heads != 0)
    reader.reject("attention.head_count",
                  fmt::format("{} is no multiple of head_count_kv {}", spec.heads, spec.kv_heads));
  const int even = spec.embedding / spec.heads;
  spec.key_dimensions = reader.dimension_or("attention.key_length", even, 1);
  spec.value_dimensions = reader.dimension_or("attention.value_length", even, 1);
  spec.feed_forward = reader.dimension("feed_forward_length");
  if (reader.dimension_or("expert_count", 0) > 0)
    reader.unsupported("llama with experts (Mixtral) is not implemented");
  spec.rope = read_rope(reader, spec.context_trained, spec.key_dimensions);
  if (spec.rope.dimensions > spec.key_dimensions)
    reader.reject("rope.dimension_count", "is larger than a head");
  spec.attention_scale = 1.0F / std::sqrt(static_cast<float>(spec.key_dimensions));
}

ExpertSpec read_experts(SpecReader& reader, const ModelSpec& spec) {
  ExpertSpec experts;
  experts.count = reader.dimension_or("expert_count", 0);
  if (experts.count == 0) return experts;
  experts.dense_layers = reader.dimension_or("leading_dense_block_count", 0);
  experts.used = reader.dimension("expert_used_count");
  experts.columns = reader.dimension("expert_feed_forward_length");
  experts.shared = reader.dimension_or("expert_shared_count", 0);
  experts.groups = reader.dimension_or("expert_group_count", 1);
  experts.groups_used = reader.dimension_or("expert_group_used_count", experts.groups);
  if (experts.groups < 1) experts.groups = experts.groups_used = 1;
  experts.normalise = reader.boolean_or("expert_weights_norm", false);
  experts.scale = reader.real_or("expert_weights_scale", 1.0);
  if (experts.scale == 0) experts.scale = 1;  // written by converters for "not scaled"
  const std::int64_t gating = reader.integer_or("expert_gating_func", 1);
  if (gating != 1 && gating != 2)
    reader.unsupported(
        fmt::format("expert gating function {} is not implemented (1 softmax, 2 sigmoid)", gating));
  experts.gating = gating == 2 ? ExpertSpec::Gating::kSigmoid : ExpertSpec::Gating::kSoftmax;
  if (experts.used > experts.count)
    reader.reject("expert_used_count",
                  fmt::format("{} is more than expert_count {}", experts.used, experts.count));
  if (experts.dense_layers > spec.layers)
    reader.reject("leading_dense_block_count", "is more than block_count");
  if (experts.count % experts.groups != 0 || experts.groups_used < 1 ||
      experts.groups_used > experts.groups)
    reader.reject("expert_group_count",
                  fmt::format("{} (of which {} used) does not fit {} experts", experts.groups,
                              experts.groups_used, experts.count));
  else if (experts.groups > 1 &&
           (experts.count / experts.groups < 2 ||
            experts.used > experts.groups_used * (experts.count / experts.groups)))
    reader.reject("expert_group_used_count", "leaves fewer experts than a token needs");
  return experts;
}

void read_deepseek2(SpecReader& reader, ModelSpec& spec) {
  spec.heads = reader.dimension("attention.head_count");
  spec.kv_heads = 1;  // one latent row serves all heads
  spec.latent.query_rank = reader.dimension_or("attention.q_lora_rank", 0);
  spec.latent.kv_rank = reader.dimension("attention.kv_lora_rank");
  if (!reader.has("attention.key_length_mla") || !reader.has("attention.value_length_mla"))
    reader.unsupported(
        "this file has the older attention layout (attn_kv_b); convert the model again with a "
        "current llama.cpp");
  spec.key_dimensions = reader.dimension_or("attention.key_length_mla", 1, 1);
  spec.value_dimensions = reader.dimension_or("attention.value_length_mla", 1, 1);
  spec.latent.value_dimensions = spec.value_dimensions;
  spec.feed_forward = reader.dimension("feed_forward_length");
  spec.experts = read_experts(reader, spec);
  spec.rope = read_rope(reader, spec.context_trained, 64);
  spec.latent.nope_dimensions = spec.key_dimensions - spec.rope.dimensions;
  if (spec.latent.nope_dimensions <= 0)
    reader.reject("attention.key_length_mla", "is not larger than rope.dimension_count");

  // YaRN's attention scale (DeepSeek-V3 modeling: softmax_scale x mscale^2, mscale = 1 + 0.1 m ln
  // factor). The file stores m x 0.1. ggml scales sine and cosine by 1 + 0.1 ln factor on its own,
  // and DeepSeek wants them unscaled: the inverse goes into attention_factor.
  const float log_factor = std::log(1.0F / spec.rope.scale);
  const float multiplier = reader.real_or("rope.scaling.yarn_log_multiplier", 0.0) / 0.1F;
  float mscale = 1.0F + 0.1F * multiplier * log_factor;
  if (spec.rope.extrapolation != 0) {
    const float own = 1.0F + 0.1F * log_factor;
    if (multiplier != 0) spec.rope.attention_factor /= own;
    mscale *= spec.rope.attention_factor * own;
  } else {
    mscale *= spec.rope.attention_factor * (1.0F + 0.1F * log_factor);
  }
  spec.attention_scale = mscale * mscale / std::sqrt(static_cast<float>(spec.key_dimensions));
}

}  // namespace

std::int64_t ModelSpec::cached_elements(int kv_head_count) const {
  if (family == Family::kDeepseek2) return latent.kv_rank + rope.dimensions;
  return static_cast<std::int64_t>(kv_head_count) * (key_dimensions + value_dimensions);
}

Result<ModelSpec> read_spec(const GgufModel& model) {
  const Metadata& metadata = model.metadata();
  SINEW_ASSIGN(const std::string architecture, metadata.string("general.architecture"));
  ModelSpec spec;
  spec.architecture = architecture;
  if (architecture == "llama") {
    spec.family = Family::kLlama;
  } else if (architecture == "deepseek2") {
    spec.family = Family::kDeepseek2;
  } else {
    return fail(ErrorCode::kUnsupported,
                "{}: architecture '{}' is not implemented; this version runs llama and deepseek2",
                model.path(), architecture);
  }
  const TensorInfo* embedding = model.find("token_embd.weight");
  if (embedding == nullptr)
    return fail(ErrorCode::kInvalidFile,
                "{}: tensor 'token_embd.weight' is missing; the file is not a whole language model",
                model.path());
  if (embedding->shape[1] > kDimensionMax * 16)
    return fail(ErrorCode::kInvalidFile, "{}: token_embd.weight has {} rows", model.path(),
                embedding->shape[1]);
  spec.vocabulary = static_cast<int>(embedding->shape[1]);
  spec.tied_output = model.find("output.weight") == nullptr;

  SpecReader reader(metadata, architecture);
  const std::size_t slash = model.path().find_last_of('/');
  SINEW_ASSIGN(spec.name,
               metadata.string_or("general.name",
                                  model.path().substr(slash == std::string::npos ? 0 : slash + 1)));
  const int blocks = reader.dimension("block_count");
  // Before a table of so many layers is made.
  if (static_cast<std::size_t>(blocks) > model.tensors().size())
    reader.reject("block_count", fmt::format("is {}, but the file holds {} tensors in all", blocks,
                                             model.tensors().size()));
  const int predict_layers = reader.dimension_or("nextn_predict_layers", 0);
  spec.layers = blocks - predict_layers;
  if (spec.layers < 1) reader.reject("nextn_predict_layers", "leaves no layers");
  spec.embedding = reader.dimension("embedding_length");
  spec.context_trained = reader.integer_or("context_length", 0);
  if (spec.context_trained < 1 || spec.context_trained > kContextMax * 16)
    reader.reject("context_length", "is missing or out of range");
  spec.rms_epsilon = reader.real_or("attention.layer_norm_rms_epsilon", 1e-5);
  SINEW_TRY(reader.status());
  switch (spec.family) {
    case Family::kLlama:
      read_llama(reader, spec);
      break;
    case Family::kDeepseek2:
      read_deepseek2(reader, spec);
      break;
  }
  SINEW_TRY(reader.status());
  return spec;
}

}  // namespace sinew
