#include "engine/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace sinew {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Sorted ascending; the smallest value that `share` of all do not exceed.
double quantile(std::span<const float> sorted, double share) {
  const auto count = static_cast<double>(sorted.size());
  const auto rank = static_cast<std::size_t>(std::max(1.0, std::ceil(share * count)));
  return sorted[std::min(rank, sorted.size()) - 1];
}

std::vector<float> sorted(std::span<const float> values) {
  std::vector<float> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

// Both ascending. A flipped token is far from the others whatever flipped it, so such tokens are
// counted: how many there are grows with the rounding, as does the rest.
std::optional<std::string> judge_flips(std::span<const float> errors,
                                       std::span<const float> noise) {
  const double border = 2 * kTolerance * quantile(noise, 0.5) + kSketchRounding;
  const auto above = [&](std::span<const float> ascending) {
    const auto first = std::upper_bound(ascending.begin(), ascending.end(), border);
    return static_cast<double>(ascending.end() - first);
  };
  const auto count = static_cast<double>(errors.size());
  // One flip at least: none seen does not mean that there are none.
  const double expected = std::min(1.0, kTolerance * std::max(1.0, above(noise)) / count);
  const double limit = expected + kQuantileSigmas * std::sqrt(expected * (1 - expected) / count);
  const double share = above(errors) / count;
  if (share <= limit) return std::nullopt;
  return fmt::format(
      "{:.1f} % of the tokens differ by more than {:.2g}; rounding accounts for "
      "{:.1f} %",
      100 * share, border, 100 * limit);
}

}  // namespace

double rounding_noise(TensorType type) {
  if (type == TensorType::kF32) return 0x1p-21;
  if (type == TensorType::kF16) return 0x1p-11 / std::sqrt(3.0);
  if (type == TensorType::kBF16) return 0x1p-8 / std::sqrt(3.0);
  return 2.8 / 127.0 / std::sqrt(12.0);
}

double kernel_noise(const std::vector<BoundTensor>& tensors) {
  double noise = rounding_noise(TensorType::kF32);
  for (const BoundTensor& tensor : tensors)
    if (tensor.info != nullptr) noise = std::max(noise, rounding_noise(tensor.info->type));
  return noise;
}

std::vector<float> relative_errors(const PlaceTrace& reference, const PlaceTrace& other) {
  std::vector<float> errors;
  errors.reserve(reference.positions.size());
  for (std::size_t i = 0; i < reference.positions.size(); ++i) {
    const auto found =
        std::lower_bound(other.positions.begin(), other.positions.end(), reference.positions[i]);
    double difference = 0;
    double length = 0;
    if (found == other.positions.end() || *found != reference.positions[i]) {
      difference = kInfinite;
    } else {
      const float* a = reference.sketches.data() + i * kSketchRows;
      const float* b = other.sketches.data() +
                       static_cast<std::size_t>(found - other.positions.begin()) * kSketchRows;
      for (int row = 0; row < kSketchRows; ++row) {
        difference += std::pow(double{b[row]} - double{a[row]}, 2);
        length += std::pow(double{a[row]}, 2);
      }
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / length);
    errors.push_back(static_cast<float>(std::isnan(error) ? kInfinite : error));
  }
  return errors;
}

Spread spread_of(std::span<const float> values) {
  if (values.empty()) return {};
  const std::vector<float> ascending = sorted(values);
  return {quantile(ascending, 0.5), ascending.back()};
}

std::optional<std::string> judge(std::span<const float> errors, std::span<const float> noise,
                                 bool has_experts, double rounding) {
  struct Level {
    double share;
    const char* name;
  };
  constexpr std::array<Level, 3> kLevels{
      {{0.5, "half of the tokens"}, {0.9, "a tenth"}, {0.99, "a hundredth"}}};
  if (errors.empty() || errors.size() != noise.size()) return "nothing was traced";
  const std::vector<float> observed = sorted(errors);
  const std::vector<float> allowed = sorted(noise);
  if (!std::isfinite(observed.back())) return "a value is not a number";
  const auto exceeds = [&](double error, double expected) {
    return error > kTolerance * expected + rounding;
  };
  const auto explain = [&](const char* name, double error, double expected) {
    return fmt::format("{} differ by {:.2g} or more; rounding accounts for {:.2g}", name, error,
                       kTolerance * expected + rounding);
  };
  const auto count = static_cast<double>(errors.size());
  for (const Level& level : kLevels) {
    const double margin = kQuantileSigmas * std::sqrt(level.share * (1 - level.share) / count);
    const double share = has_experts ? level.share + margin : level.share;
    if (share >= 1) break;
    const double error = quantile(observed, level.share);
    const double expected = quantile(allowed, share);
    if (exceeds(error, expected)) return explain(level.name, error, expected);
  }
  if (has_experts) return judge_flips(observed, allowed);
  if (exceeds(observed.back(), allowed.back()))
    return explain("single tokens", observed.back(), allowed.back());
  return std::nullopt;
}

LogitRow summarise(std::int64_t position, std::span<const float> logits) {
  LogitRow row;
  row.position = position;
  row.ids.resize(std::min(kTopLogits, logits.size()));
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  // What is not a number comes last; the lower id first among equals.
  std::partial_sort_copy(order.begin(), order.end(), row.ids.begin(), row.ids.end(),
                         [&](TokenId a, TokenId b) {
                           const bool a_bad = std::isnan(value(a));
                           const bool b_bad = std::isnan(value(b));
                           if (a_bad || b_bad) return a_bad == b_bad ? a < b : b_bad;
                           return value(a) != value(b) ? value(a) > value(b) : a < b;
                         });
  for (const TokenId id : row.ids) row.values.push_back(value(id));
  const double highest = row.values.empty() ? 0 : double{row.values.front()};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - highest);
  row.log_sum = highest + std::log(sum);
  return row;
}

LogitError compare_logits(const LogitRow& reference, std::span<const float> other) {
  const double other_sum = summarise(reference.position, other).log_sum;
  LogitError error;
  double reference_rest = 1;
  double other_rest = 1;
  for (std::size_t i = 0; i < reference.ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(reference.ids[i]);
    if (id >= other.size()) return {kInfinite, kInfinite};
    const double log_p = double{reference.values[i]} - reference.log_sum;
    const double log_q = double{other[id]} - other_sum;
    error.kl += std::exp(log_p) * (log_p - log_q);
    reference_rest -= std::exp(log_p);
    other_rest -= std::exp(log_q);
    const double difference = std::abs(double{other[id]} - double{reference.values[i]});
    error.largest = std::isnan(difference) ? kInfinite : std::max(error.largest, difference);
  }
  // Below this the rest is what rounding left of the subtraction.
  constexpr double kRestMin = 1e-9;
  if (reference_rest > kRestMin && other_rest > kRestMin)
    error.kl += reference_rest * std::log(reference_rest / other_rest);
  error.kl = std::isnan(error.kl) ? kInfinite : std::max(0.0, error.kl);
  return error;
}

}  // namespace sinew
