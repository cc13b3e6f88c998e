#include "model/spec.h"

#include "base/limits.h"
#include "model/families.h"
#include "model/spec_reader.h"

namespace sinew {

std::int64_t ModelSpec::cached_keys(int kv_head_count) const {
  if (caches_latent()) return kv_head_count > 0 ? latent.kv_rank + rope.dimensions : 0;
  return static_cast<std::int64_t>(kv_head_count) * key_dimensions;
}

std::int64_t ModelSpec::cached_values(int kv_head_count) const {
  return caches_latent() ? 0 : static_cast<std::int64_t>(kv_head_count) * value_dimensions;
}

std::int64_t ModelSpec::cached_index_keys(int layer, int kv_head_count) const {
  return kv_head_count > 0 && indexes(layer) ? indexer.dimensions : 0;
}

Result<ModelSpec> read_spec(const GgufModel& model) {
  const Metadata& metadata = model.metadata();
  SINEW_ASSIGN(const std::string architecture, metadata.string("general.architecture"));
  ModelSpec spec;
  spec.architecture = architecture;
  const Architecture* known = find_architecture(architecture);
  if (known == nullptr)
    return fail(ErrorCode::kUnsupported,
                "{}: architecture '{}' is not implemented; this version runs {}", model.path(),
                architecture, architecture_names());
  spec.family = known->family;
  const TensorInfo* embedding = model.find("token_embd.weight");
  if (embedding == nullptr)
    return fail(ErrorCode::kInvalidFile,
                "{}: tensor 'token_embd.weight' is missing; the file is not a whole language model",
                model.path());
  if (embedding->shape[1] > SpecReader::kDimensionMax * 16)
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
  known->read(reader, spec);
  SINEW_TRY(reader.status());
  return spec;
}

}  // namespace sinew
