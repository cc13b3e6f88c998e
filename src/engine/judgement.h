#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "graph/trace.h"
#include "model/tensor_decl.h"

// When two computations of one model are the same but for rounding.
//
// Ranks add their parts in another order than one rank does, and another shape of matrix or another
// device takes another kernel, which rounds activations in its own way. How far that moves a result
// depends on the model: rounding to eight bits after each difference makes a small one larger, and
// where two experts are nearly tied rounding chooses. So the tolerance is measured on the model
// itself: the reference is computed a second time with noise of one rounding (`kernel_noise`) on
// every sum in which ranks agree, and the other computation may differ from the reference
// kTolerance times as much as that one does, place by place.
//
// Places are judged by quantiles over many tokens. Without experts noise has no long tail, so the
// worst token is judged, too. With experts a token whose expert flips is another token from there
// on, and there may be more of those in one computation than in the other by chance: each quantile
// is compared with one of the noise that lies kQuantileSigmas binomial deviations higher, and,
// instead of the worst token, the number of tokens that are far off.
namespace sinew {

// Rounding of two sums differs by 1.4 times one's, and noise stands at two places of a layer while
// about four products are rounded, another 1.4; half as much again for what the proxy leaves out.
inline constexpr double kTolerance = 3.0;
inline constexpr double kQuantileSigmas = 4.0;
// Relative difference of sketches that float32 itself causes: 2^-24 times the root of some 7000
// terms.
inline constexpr double kSketchRounding = 5e-6;

// Relative rounding of one product with matrices of this type, as ggml computes it: F16 and BF16
// round the activations to their 11 and 8 bits (uniform, so half a step / sqrt(3) on average),
// quantised types to 127 steps of the largest of up to 256 (2.8 deviations), float32 sums differ by
// a few units in the last place.
double rounding_noise(TensorType type);
// Of the coarsest matrix of the model.
double kernel_noise(const std::vector<BoundTensor>& tensors);

// Sketches of one place, in order of their positions.
struct PlaceTrace {
  std::vector<std::int64_t> positions;
  std::vector<float> sketches;  // kSketchRows of each
};
using Traces = std::map<TracePlace, PlaceTrace>;

// |other - reference| / |reference| of each position of the reference; infinite where one is not a
// number or the other has no such position.
std::vector<float> relative_errors(const PlaceTrace& reference, const PlaceTrace& other);

// Some quantiles, for people.
struct Spread {
  double median = 0;
  double worst = 0;
};
Spread spread_of(std::span<const float> values);

// Nothing if `errors` are within what `noise` allows, of as many values. Else one line: "half of
// the tokens differ by more than 0.3; noise of rounding accounts for 0.01".
std::optional<std::string> judge(std::span<const float> errors, std::span<const float> noise,
                                 bool has_experts, double rounding = kSketchRounding);

// The logits after one position: the largest ones and what is needed for their probabilities.
inline constexpr std::size_t kTopLogits = 64;
struct LogitRow {
  std::int64_t position = 0;
  std::vector<TokenId> ids;  // largest first
  std::vector<float> values;
  double log_sum = 0;  // of the exponentials of all logits
};
LogitRow summarise(std::int64_t position, std::span<const float> logits);

// KL(reference || other) in nats over the reference's largest tokens and all others as one, and the
// largest difference among those tokens. Infinite for what is not a number.
struct LogitError {
  double kl = 0;
  double largest = 0;
};
LogitError compare_logits(const LogitRow& reference, std::span<const float> other);

}  // namespace sinew
