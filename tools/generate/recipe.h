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
  kNormal,
  kRopeFactors,  // not drawn: the frequency factors of Llama 3.1
};

struct Weight {
  std::string name;
  std::vector<std::uint64_t> shape;  // fastest dimension first
  TensorType type = TensorType::kF32;
  Draw draw = Draw::kNormal;
  float mean = 0.0F;  // 0 for matrices
  float deviation = 1.0F;
};

// Everything that a user may choose; what is not chosen is the kind's own.
struct Options {
  std::optional<TensorType> type;            // of all matrices
  bool mixed = false;                        // another type for each of them
  std::optional<TensorType> attention_type;  // of those of the attention
  std::optional<TensorType> expert_type;     // of those of the feed-forward layers
  std::optional<std::uint32_t> context;
  std::optional<std::uint32_t> experts;
  bool tied = false;
  bool prediction_layer = false;         // one more layer, for multi-token prediction
  bool head_norms = false;               // norms of each query's and key's head
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
  Result<Recipe> (*make)(const Options&);
};
const std::vector<Kind>& kinds();

// The kinds of each family, in a file of its own.
std::vector<Kind> llama_kinds();
std::vector<Kind> qwen_kinds();
std::vector<Kind> glm_kinds();
std::vector<Kind> gpt_oss_kinds();
std::vector<Kind> minimax_kinds();
std::vector<Kind> gemma_kinds();
std::vector<Kind> deepseek_kinds();

Result<Recipe> make_recipe(std::string_view kind, const Options& options);

}  // namespace sinew::generate
