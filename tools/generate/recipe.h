#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/metadata.h"
#include "gguf/tensor_type.h"
#include "support/gguf_writer.h"

namespace sinew::generate {

// How the elements of a tensor are drawn.
enum class Draw : std::uint8_t {
  kNormal,       // mean 0
  kNearOne,      // mean 1: the weights of a norm
  kRopeFactors,  // not drawn: the frequency factors of Llama 3.1
};

struct Weight {
  std::string name;
  std::vector<std::uint64_t> shape;  // fastest dimension first
  TensorType type = TensorType::kF32;
  Draw draw = Draw::kNormal;
  float deviation = 1.0F;  // standard deviation of the elements
};

// Everything that a user may choose; what is not chosen is the kind's own.
struct Options {
  std::optional<TensorType> type;            // of all matrices
  std::optional<TensorType> attention_type;  // of those of the attention
  std::optional<TensorType> expert_type;     // of those of the feed-forward layers
  std::optional<std::uint32_t> context;
  std::optional<std::uint32_t> experts;
  bool tied = false;
  const Metadata* vocabulary = nullptr;  // of another model; outlives the call
};

// A model before its weights are drawn: the header's key-value pairs, and the tensors in file
// order.
struct Recipe {
  test::GgufWriter header;
  std::vector<Weight> weights;
  std::vector<std::string> notes;  // for the user: where a type could not be honoured
};

struct Kind {
  std::string_view name;
  std::string_view description;
};
const std::vector<Kind>& kinds();

Result<Recipe> make_recipe(std::string_view kind, const Options& options);

}  // namespace sinew::generate
