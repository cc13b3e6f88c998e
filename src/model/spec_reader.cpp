#include "model/spec_reader.h"

#include <algorithm>

namespace sinew {

int SpecReader::dimension(const std::string& key, std::int64_t low) {
  return bounded(metadata_.integer(prefix_ + key), key, low);
}

int SpecReader::dimension_or(const std::string& key, std::int64_t fallback, std::int64_t low) {
  return bounded(metadata_.integer_or(prefix_ + key, fallback), key, low);
}

std::int64_t SpecReader::integer_or(const std::string& key, std::int64_t fallback) {
  return keep(metadata_.integer_or(prefix_ + key, fallback));
}

float SpecReader::real_or(const std::string& key, double fallback) {
  const double value = keep(metadata_.real_or(prefix_ + key, fallback));
  if (!std::isfinite(value)) reject(key, "is not a finite number");
  return static_cast<float>(value);
}

bool SpecReader::boolean_or(const std::string& key, bool fallback) {
  return keep(metadata_.boolean_or(prefix_ + key, fallback));
}

std::string SpecReader::string_or(const std::string& key, const std::string& fallback) {
  return keep(metadata_.string_or(prefix_ + key, fallback));
}

std::vector<bool> SpecReader::flags(const std::string& key, int count) {
  const MetaValue* value = metadata_.find(prefix_ + key);
  const auto* array = value == nullptr ? nullptr : std::get_if<MetaArray>(value);
  if (array == nullptr) return {};
  std::vector<bool> flags = array->booleans;
  for (const std::uint64_t n : array->unsigned_integers) flags.push_back(n != 0);
  for (const std::int64_t n : array->signed_integers) flags.push_back(n != 0);
  if (flags.size() < static_cast<std::size_t>(count)) {
    reject(key, fmt::format("has {} elements for {} layers", flags.size(), count));
    return std::vector<bool>(static_cast<std::size_t>(count));
  }
  return flags;
}

void SpecReader::reject(const std::string& key, std::string_view why) {
  if (status_)
    status_ = fail(ErrorCode::kInvalidFile, "{}: {}{} {}", metadata_.file(), prefix_, key, why);
}

void SpecReader::unsupported(std::string_view why) {
  if (status_) status_ = fail(ErrorCode::kUnsupported, "{}: {}", metadata_.file(), why);
}

int SpecReader::bounded(Result<std::int64_t> value, const std::string& key, std::int64_t low) {
  const std::int64_t number = keep(std::move(value));
  if (status_ && (number < low || number > kDimensionMax))
    reject(key, fmt::format("is {}, outside {} .. {}", number, low, kDimensionMax));
  // After an error no value counts, but families go on to divide by some of them.
  return status_ ? static_cast<int>(number) : 1;
}

// Which of the keys matter depends on rope.scaling.type.
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

// arXiv:2309.00071, section 3.2: frequencies that turn more than beta_fast times within the
// original context are kept, those below beta_slow are stretched by the factor, and a ramp over the
// dimensions joins them.
void use_unrounded_yarn(RopeSpec& rope) {
  if (rope.extrapolation == 0) return;
  constexpr double kRampMin = 0.001;  // as everywhere where the two borders meet
  const double pi = std::acos(-1.0);
  const auto border = [&](double turns) {
    return rope.dimensions * std::log(rope.original_context / (turns * 2 * pi)) /
           (2 * std::log(double{rope.base}));
  };
  const double low = std::max(0.0, border(rope.beta_fast));
  const double high = std::min(rope.dimensions - 1.0, border(rope.beta_slow));
  rope.divisors.clear();
  for (int pair = 0; pair < rope.dimensions / 2; ++pair) {
    const double ramp = std::clamp((pair - low) / std::max(kRampMin, high - low), 0.0, 1.0);
    const double kept = (1 - ramp) * double{rope.extrapolation};
    rope.divisors.push_back(static_cast<float>(1 / (kept + (1 - kept) * double{rope.scale})));
  }
  // What ggml multiplies by only where it extrapolates itself.
  rope.attention_factor *= 1.0F + 0.1F * std::log(1.0F / rope.scale);
  rope.extrapolation = 0;
  rope.scale = 1;
}

void read_grouped_attention(SpecReader& reader, ModelSpec& spec) {
  spec.heads = reader.dimension("attention.head_count");
  spec.kv_heads = reader.dimension_or("attention.head_count_kv", spec.heads, 1);
  if (spec.heads % spec.kv_heads != 0)
    reader.reject("attention.head_count",
                  fmt::format("{} is no multiple of head_count_kv {}", spec.heads, spec.kv_heads));
  const int even = spec.embedding / spec.heads;
  spec.key_dimensions = reader.dimension_or("attention.key_length", even, 1);
  spec.value_dimensions = reader.dimension_or("attention.value_length", even, 1);
  spec.rope = read_rope(reader, spec.context_trained, spec.key_dimensions);
  if (spec.rope.dimensions > spec.key_dimensions)
    reader.reject("rope.dimension_count", "is larger than a head");
  spec.attention_scale = 1.0F / std::sqrt(static_cast<float>(spec.key_dimensions));
}

ExpertSpec read_experts(SpecReader& reader, const ModelSpec& spec, const ExpertDefaults& defaults) {
  ExpertSpec experts;
  experts.count = reader.dimension_or("expert_count", 0);
  if (experts.count == 0) return experts;
  experts.dense_layers = reader.dimension_or("leading_dense_block_count", 0);
  experts.used = reader.dimension("expert_used_count");
  experts.columns = defaults.columns == 0
                        ? reader.dimension("expert_feed_forward_length")
                        : reader.dimension_or("expert_feed_forward_length", defaults.columns, 1);
  experts.shared = reader.dimension_or("expert_shared_count", 0);
  experts.groups = reader.dimension_or("expert_group_count", 1);
  experts.groups_used = reader.dimension_or("expert_group_used_count", experts.groups);
  if (experts.groups < 1) experts.groups = experts.groups_used = 1;
  experts.normalise = reader.boolean_or("expert_weights_norm", defaults.normalise);
  experts.scale = reader.real_or("expert_weights_scale", 1.0);
  if (experts.scale == 0) experts.scale = 1;  // written by converters for "not scaled"
  // 0 is written for "not said".
  const std::int64_t gating = reader.integer_or("expert_gating_func", 0);
  switch (gating) {
    case 0:
      experts.gating = defaults.gating;
      break;
    case 1:
      experts.gating = ExpertSpec::Gating::kSoftmax;
      break;
    case 2:
      experts.gating = ExpertSpec::Gating::kSigmoid;
      break;
    case 3:
      experts.gating = ExpertSpec::Gating::kSoftmaxOfChosen;
      break;
    default:
      reader.unsupported(
          fmt::format("expert gating function {} is not implemented (1 softmax, 2 sigmoid, 3 "
                      "softmax of the chosen are)",
                      gating));
  }
  if (experts.used > experts.count)
    reader.reject("expert_used_count",
                  fmt::format("{} is more than expert_count {}", experts.used, experts.count));
  else if (experts.used > SpecReader::kExpertsUsedMax)
    reader.unsupported(fmt::format("a token goes to {} experts; at most {} are implemented",
                                   experts.used, SpecReader::kExpertsUsedMax));
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

void read_window(SpecReader& reader, ModelSpec& spec, int period) {
  spec.window.size = reader.dimension_or("attention.sliding_window", 0);
  if (spec.window.size == 0) return;
  spec.window.layers = reader.flags("attention.sliding_window_pattern", spec.layers);
  if (spec.window.layers.empty()) {
    const int every = reader.dimension_or("attention.sliding_window_pattern", period);
    for (int layer = 0; layer < spec.layers; ++layer)
      spec.window.layers.push_back(every == 0 || layer % every < every - 1);
  }
  spec.window.rope = spec.rope;
}

}  // namespace sinew
