#include "model/tensor_decl.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>

#include "base/assert.h"
#include "model/families.h"

namespace sinew {
namespace {

// Columns of unquantised tensors are handed out in this many, so that rows stay aligned for vector
// code and repacked kernels.
constexpr std::int64_t kColumnsAligned = 32;

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// True for tensors of layers that predict further tokens and that generation does not use.
bool in_predict_layer(const ModelSpec& spec, std::string_view name) {
  if (!name.starts_with("blk.")) return false;
  std::int64_t layer = 0;
  for (const char digit : name.substr(4)) {
    if (std::isdigit(static_cast<unsigned char>(digit)) == 0 || layer > kDimensionCount * 1000)
      break;
    layer = layer * 10 + (digit - '0');
  }
  return layer >= spec.layers;
}

Status check_tensor(const TensorDecl& decl, const TensorInfo& info, const GgufModel& model) {
  std::array<std::int64_t, 4> found{};
  std::transform(info.shape.begin(), info.shape.end(), found.begin(),
                 [](std::uint64_t n) { return static_cast<std::int64_t>(n); });
  if (found != decl.shape)
    return fail(
        ErrorCode::kInvalidFile,
        "{}: tensor '{}' has shape {}, its metadata say {}; the file is damaged or badly converted",
        model.paths()[info.part], decl.name, shape_text(found), shape_text(decl.shape));
  const bool is_float = info.type == TensorType::kF32 || info.type == TensorType::kF16 ||
                        info.type == TensorType::kBF16;
  if (decl.float_only && info.type != TensorType::kF32)
    return fail(ErrorCode::kUnsupported,
                "{}: tensor '{}' has type {}; norms and biases must be F32 (convert the model with "
                "a current llama.cpp)",
                model.paths()[info.part], decl.name, info.traits().name);
  if (!is_float && info.traits().block_length == 1)
    return fail(ErrorCode::kUnsupported,
                "{}: tensor '{}' has type {}, with which matrices cannot be multiplied",
                model.paths()[info.part], decl.name, info.traits().name);
  return {};
}

}  // namespace

std::string_view dimension_name(Dimension dimension) {
  switch (dimension) {
    case Dimension::kHeads:
      return "attention heads";
    case Dimension::kFeedForward:
      return "feed-forward columns";
    case Dimension::kExpertColumns:
      return "expert columns";
    case Dimension::kExperts:
      return "experts";
    case Dimension::kSharedColumns:
      return "shared-expert columns";
    case Dimension::kVocabulary:
      return "vocabulary rows";
  }
  return "?";
}

std::vector<TensorDecl> declare_tensors(const ModelSpec& spec) {
  const Architecture* architecture = find_architecture(spec.architecture);
  SINEW_ASSERT(architecture != nullptr);
  TensorTable table(spec);
  architecture->declare(spec, table);
  return table.take();
}

std::int64_t dimension_size(const ModelSpec& spec, Dimension dimension) {
  const bool has_dense = spec.dense(0);
  const bool has_experts = !spec.dense(spec.layers - 1);
  switch (dimension) {
    case Dimension::kHeads:
      return spec.kv_heads;
    case Dimension::kFeedForward:
      return has_dense ? spec.feed_forward : 0;
    case Dimension::kExpertColumns:
      return has_experts ? spec.experts.columns : 0;
    case Dimension::kExperts:
      return has_experts ? spec.experts.count : 0;
    case Dimension::kSharedColumns:
      return has_experts ? std::int64_t{spec.experts.shared} * spec.experts.columns : 0;
    case Dimension::kVocabulary:
      return spec.vocabulary;
  }
  return 0;
}

Result<std::vector<BoundTensor>> bind_tensors(const ModelSpec& spec, const GgufModel& model) {
  std::vector<BoundTensor> bound;
  std::set<std::string_view> known;
  for (TensorDecl& decl : declare_tensors(spec)) {
    const TensorInfo* info = model.find(decl.source.empty() ? decl.name : decl.source);
    if (info == nullptr) {
      if (!decl.required) continue;
      return fail(ErrorCode::kInvalidFile,
                  "{}: tensor '{}' is missing; the file is incomplete or was made for another "
                  "architecture than '{}'",
                  model.path(), decl.name, spec.architecture);
    }
    SINEW_TRY(check_tensor(decl, *info, model));
    known.insert(info->name);
    bound.push_back(BoundTensor{std::move(decl), info});
  }
  for (const TensorInfo& info : model.tensors()) {
    if (known.contains(info.name) || in_predict_layer(spec, info.name)) continue;
    return fail(ErrorCode::kUnsupported,
                "{}: tensor '{}' has no place in architecture '{}' as this version knows it; "
                "running without it would give wrong text",
                model.paths()[info.part], info.name, spec.architecture);
  }
  return bound;
}

std::array<std::int64_t, kDimensionCount> split_units(const ModelSpec& spec,
                                                      const std::vector<BoundTensor>& tensors) {
  std::array<std::int64_t, kDimensionCount> units{};
  for (int d = 0; d < kDimensionCount; ++d) {
    const auto dimension = static_cast<Dimension>(d);
    const std::int64_t size = dimension_size(spec, dimension);
    units[static_cast<std::size_t>(d)] =
        dimension == Dimension::kHeads || dimension == Dimension::kExperts
            ? 1
            : std::clamp<std::int64_t>(std::gcd(size, kColumnsAligned), 1, kColumnsAligned);
  }
  for (const BoundTensor& tensor : tensors) {
    const SplitRule& rule = tensor.decl.split;
    if (rule.mirrored || rule.axis != 0) continue;
    // Smallest number of indices whose elements are whole blocks.
    const std::int64_t block = tensor.info->traits().block_length;
    const std::int64_t unit = std::lcm(block, rule.elements_per_index) / rule.elements_per_index;
    auto& total = units[static_cast<std::size_t>(rule.dimension)];
    total = std::lcm(total, unit);
  }
  return units;
}

}  // namespace sinew
