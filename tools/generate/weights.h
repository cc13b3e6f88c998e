#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe.h"
#include "vocabulary.h"

// What the recipes of all families share.
//
// Deviations: a matrix of n inputs is drawn with 1/sqrt(n), which keeps activations near 1. Queries
// are drawn twice as wide, so that attention prefers some positions and a wrong position shows
// (where a norm follows, its mean is 2 instead); the output layer three times, so that the logits'
// spread (about 3) makes greedy choices clear.
namespace sinew::generate {

inline constexpr float kQueryGain = 2.0F;
inline constexpr float kOutputGain = 3.0F;
inline constexpr float kNormDeviation = 0.1F;
inline constexpr float kBiasDeviation = 0.3F;
inline constexpr float kRouterBiasDeviation = 0.1F;
// Of llama.cpp's expert_gating_func.
inline constexpr std::uint32_t kSoftmaxGating = 1;
inline constexpr std::uint32_t kSigmoidGating = 2;

inline float fan_in(std::uint32_t inputs) {
  return 1.0F / std::sqrt(static_cast<float>(inputs));
}

// Types of the matrices; nothing means another one for each matrix, as dynamic quantisations have.
struct Types {
  using Choice = std::optional<TensorType>;
  Choice attention;
  Choice feed_forward;  // of dense layers and of shared experts
  Choice experts;
  Choice experts_down;
  Choice vocabulary;

  static Types all(TensorType type) { return {type, type, type, type, type}; }
};
Types chosen(const Options& options, const Types& usual);

// Keys that begin with the name of the architecture.
class FamilyKeys {
 public:
  FamilyKeys(test::GgufWriter& header, std::string_view architecture, std::string_view name)
      : header_(header), architecture_(architecture) {
    header_.add("general.architecture", architecture_).add("general.name", std::string(name));
  }
  template <typename T>
  FamilyKeys& add(std::string_view key, const T& value) {
    header_.add(fmt::format("{}.{}", architecture_, key), value);
    return *this;
  }

 private:
  test::GgufWriter& header_;
  std::string architecture_;
};

// Collects the tensors of a model.
class Weights {
 public:
  explicit Weights(Recipe& recipe) : recipe_(recipe) {}

  void norm(std::string name, std::uint32_t size, float mean = 1.0F) {
    recipe_.weights.push_back(
        {std::move(name), {size}, TensorType::kF32, Draw::kNormal, mean, kNormDeviation});
  }
  void floats(std::string name, std::vector<std::uint64_t> shape, float deviation,
              Draw draw = Draw::kNormal, float mean = 0.0F) {
    recipe_.weights.push_back(
        {std::move(name), std::move(shape), TensorType::kF32, draw, mean, deviation});
  }
  void matrix(std::string name, std::vector<std::uint64_t> shape, Types::Choice type,
              float deviation);

 private:
  TensorType fitting(const std::string& name, std::uint64_t row, TensorType type);

  Recipe& recipe_;
  std::size_t mixed_ = 0;  // matrices whose type was not given
};

Result<std::uint32_t> add_vocabulary(const Options& options, std::string_view pre,
                                     std::uint32_t size, test::GgufWriter& header);

// The embedding, the last norm, and the output layer unless `tied`.
void add_ends(Weights& weights, std::uint32_t hidden, std::uint32_t vocabulary, bool tied,
              Types::Choice type);

enum class HeadNorm : std::uint8_t { kNone, kEachHead, kAllHeads };

struct GroupedAttention {
  std::uint32_t hidden, heads, kv_heads, head;
  HeadNorm norm = HeadNorm::kNone;
  bool biases = false;  // of queries, keys and values
};
// Begins with the norm before it.
void add_grouped_attention(Weights& weights, const std::string& block,
                           const GroupedAttention& attention, Types::Choice type);

// `suffix`: "" for a dense layer, "_shexp" for the shared expert.
void add_feed_forward(Weights& weights, const std::string& block, std::string_view suffix,
                      std::uint32_t hidden, std::uint32_t columns, Types::Choice type);

struct Experts {
  std::uint32_t hidden, columns, count;
  bool selection_bias = false;  // added to the scores by which experts are selected
};
// The router and the routed experts.
void add_experts(Weights& weights, const std::string& block, const Experts& experts,
                 const Types& types);

// What a multi-token-prediction layer has beside a usual layer. It reads the embedding and the
// output layer of the model, as published files do.
void add_next_token_parts(Weights& weights, const std::string& block, std::uint32_t hidden,
                          Types::Choice type);

// The options that a kind has a use for; any other is an error.
struct Understood {
  bool experts = false;
  bool tied = false;
  bool prediction_layer = false;
  bool head_norms = false;
};
Status check_options(const Options& options, const Understood& understood);
// The number of experts asked for, or `usual`.
Result<std::uint32_t> expert_count(const Options& options, std::uint32_t usual, std::uint32_t used,
                                   std::uint32_t groups = 1);

}  // namespace sinew::generate
