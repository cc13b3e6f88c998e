#pragma once

#include <cmath>
#include <string>

#include "base/result.h"
#include "gguf/metadata.h"
#include "model/spec.h"

namespace sinew {

// Reads `<architecture>.<key>` and keeps the first error, so that a family's reader stays a plain
// list. After an error getters give harmless values.
class SpecReader {
 public:
  static constexpr std::int64_t kDimensionMax = 1 << 20;
  // Experts that one token goes to; bounds the size of a graph.
  static constexpr int kExpertsUsedMax = 64;

  SpecReader(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

  int dimension(const std::string& key, std::int64_t low = 1);
  int dimension_or(const std::string& key, std::int64_t fallback, std::int64_t low = 0);
  std::int64_t integer_or(const std::string& key, std::int64_t fallback);
  float real_or(const std::string& key, double fallback);
  bool boolean_or(const std::string& key, bool fallback);
  std::string string_or(const std::string& key, const std::string& fallback);
  bool has(const std::string& key) const { return metadata_.has(prefix_ + key); }
  // An array of booleans or integers with one element a layer; empty if the key is no array.
  std::vector<bool> flags(const std::string& key, int count);

  // The file contradicts itself.
  void reject(const std::string& key, std::string_view why);
  // The file is right, but this version cannot run it.
  void unsupported(std::string_view why);
  const Status& status() const { return status_; }

 private:
  int bounded(Result<std::int64_t> value, const std::string& key, std::int64_t low);
  template <typename T>
  T keep(Result<T> value) {
    if (value) return *std::move(value);
    if (status_) status_ = fail(std::move(value).error());
    return T{};
  }

  const Metadata& metadata_;  // outlives the reader
  std::string prefix_;
  Status status_;
};

// Parts of the metadata that families share. `dimensions`: rotated elements if the file does not
// say.
RopeSpec read_rope(SpecReader& reader, std::int64_t context, int dimensions);

// For models trained with YaRN whose borders are not rounded: ggml rounds those between kept and
// stretched frequencies to whole dimensions, so its YaRN is replaced by divisors. Does nothing if
// the model has no YaRN.
void use_unrounded_yarn(RopeSpec& rope);
// Heads, key-value heads, their dimensions, scale and rotation of grouped-query attention.
void read_grouped_attention(SpecReader& reader, ModelSpec& spec);
// What holds if the file does not say. Without `columns` the file must.
struct ExpertDefaults {
  ExpertSpec::Gating gating = ExpertSpec::Gating::kSoftmax;
  bool normalise = false;
  int columns = 0;
};
ExpertSpec read_experts(SpecReader& reader, const ModelSpec& spec, const ExpertDefaults& defaults);
// Window and its layers: all but the last of each `period`, unless the file lists them.
void read_window(SpecReader& reader, ModelSpec& spec, int period);

}  // namespace sinew
