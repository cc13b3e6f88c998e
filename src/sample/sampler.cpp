#include "sample/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/assert.h"
#include "sample/random.h"

namespace sinew {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr double kExponentMin = -44.3614195558365;  // ln(2^-64)
constexpr int kPenaltyWindowMax = 1 << 16;

float clean(float logit) {
  if (logit != logit) return kImpossible;
  return std::min(logit, kLargest);
}

// e^x for x in [kExponentMin, 0], within 1 ulp or so: e^x = 2^k * e^r with |r| <= ln(2) / 2 and the
// Taylor series of e^r, whose first term left out is r^14 / 14! < 5e-18.
double exp_of_negative(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 32 bits, so that k * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const int k = static_cast<int>(x * kLog2E - 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  constexpr std::array<double, 14> kInverseFactorial = [] {
    std::array<double, 14> values{1.0};
    double factorial = 1.0;
    for (std::size_t i = 1; i < values.size(); ++i) {
      factorial *= static_cast<double>(i);
      values[i] = 1.0 / factorial;
    }
    return values;
  }();
  double sum = kInverseFactorial.back();
  for (std::size_t i = kInverseFactorial.size() - 1; i-- > 0;) sum = sum * r + kInverseFactorial[i];
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + k) << 52);
}

TokenId likeliest(std::span<const float> logits) {
  float best = kImpossible;
  std::size_t best_index = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    // The comparison is false for NaN; +infinity ties with the largest float, so it is cleaned
    // first.
    const float logit = std::min(logits[i], kLargest);
    if (logit > best) {
      best = logit;
      best_index = i;
    }
  }
  return static_cast<TokenId>(best_index);
}

bool in_range(float value, float low, float high) {
  return std::isfinite(value) && value >= low && value <= high;
}

}  // namespace

Status check_sampling(const SamplingParams& params) {
  const auto refuse = [](const char* name, const char* range, auto value) {
    return fail(ErrorCode::kInvalidRequest, "{} must be {}, but is {}", name, range, value);
  };
  if (!in_range(params.temperature, 0.0F, 100.0F))
    return refuse("temperature", "from 0 to 100", params.temperature);
  if (params.top_k < 0) return refuse("top_k", "0 (off) or more", params.top_k);
  if (!in_range(params.top_p, 0.0F, 1.0F)) return refuse("top_p", "from 0 to 1", params.top_p);
  if (!in_range(params.min_p, 0.0F, 1.0F)) return refuse("min_p", "from 0 to 1", params.min_p);
  if (!in_range(params.repeat_penalty, 0.01F, 100.0F))
    return refuse("repeat_penalty", "from 0.01 to 100", params.repeat_penalty);
  if (!in_range(params.presence_penalty, -100.0F, 100.0F))
    return refuse("presence_penalty", "from -100 to 100", params.presence_penalty);
  if (!in_range(params.frequency_penalty, -100.0F, 100.0F))
    return refuse("frequency_penalty", "from -100 to 100", params.frequency_penalty);
  if (params.penalty_window < 0 || params.penalty_window > kPenaltyWindowMax)
    return refuse("penalty_window", "from 0 to 65536", params.penalty_window);
  return {};
}

Sampler::Sampler(const SamplingParams& params, int vocabulary_size)
    : params_(params), vocabulary_size_(vocabulary_size) {
  SINEW_ASSERT(vocabulary_size > 0);
  SINEW_ASSERT(check_sampling(params).has_value());
  const bool penalties = params.repeat_penalty != 1.0F || params.presence_penalty != 0.0F ||
                         params.frequency_penalty != 0.0F;
  const auto size = static_cast<std::size_t>(vocabulary_size);
  if (penalties && params.penalty_window > 0) {
    work_.resize(size);
    recent_.reserve(static_cast<std::size_t>(params.penalty_window));
  }
  if (params.temperature > 0.0F) candidates_.reserve(size);
}

std::span<const float> Sampler::penalised(std::span<const float> logits,
                                          std::span<const TokenId> history) {
  if (work_.empty()) return logits;
  std::copy(logits.begin(), logits.end(), work_.begin());
  const auto window = std::min(history.size(), static_cast<std::size_t>(params_.penalty_window));
  const auto tail = history.last(window);
  recent_.assign(tail.begin(), tail.end());
  std::sort(recent_.begin(), recent_.end());

  for (std::size_t i = 0; i < recent_.size();) {
    const TokenId token = recent_[i];
    const std::size_t first = i;
    while (i < recent_.size() && recent_[i] == token) ++i;
    if (token < 0 || token >= vocabulary_size_) continue;
    float& logit = work_[static_cast<std::size_t>(token)];
    logit = clean(logit);
    logit = logit > 0.0F ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    logit -= params_.presence_penalty;
    logit -= params_.frequency_penalty * static_cast<float>(i - first);
  }
  return work_;
}

// Fills candidates_, by token id, with what is likely enough to be drawn at all; `weight` is still
// a logarithm.
void Sampler::collect(std::span<const float> logits, float largest) {
  const double inverse_temperature = 1.0 / static_cast<double>(params_.temperature);
  // In float, the cut is a cheap first test; what it lets pass is judged in double.
  const double cut = static_cast<double>(largest) + kExponentMin / inverse_temperature;
  const float cut_low = std::max(
      -kLargest, std::nextafter(static_cast<float>(std::max(cut, -static_cast<double>(kLargest))),
                                kImpossible));
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] >= cut_low)) continue;
    const float logit = std::min(logits[i], kLargest);
    const double x =
        (static_cast<double>(logit) - static_cast<double>(largest)) * inverse_temperature;
    if (x < kExponentMin) continue;
    candidates_.push_back({logit, static_cast<TokenId>(i), x});
  }
}

void Sampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(params_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k),
                   candidates_.end(), likelier);
  candidates_.resize(k);
  // nth_element leaves the order to the library: restore one that is the same everywhere.
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

// Keeps the likeliest tokens, as few as reach top_p together; the one that reaches it stays.
void Sampler::keep_top_p() {
  if (params_.top_p >= 1.0F) return;
  const double top_p = static_cast<double>(params_.top_p);
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  // Tokens lighter than this weigh less than (1 - top_p) together, so the others reach top_p
  // without them: only those are worth sorting. Half of it leaves room for rounding.
  const double lightest = 0.5 * (1.0 - top_p) * total / static_cast<double>(candidates_.size());
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return candidate.weight < lightest; });
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  double sum = 0.0;
  std::size_t kept = 0;
  // The likeliest few reach top_p almost always: sort in blocks that double, as far as needed.
  for (std::size_t block = 256; kept == 0 || (kept < candidates_.size() && sum < top_p * total);
       block *= 2) {
    const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
    const auto last =
        first + static_cast<std::ptrdiff_t>(std::min(block, candidates_.size() - kept));
    if (last != candidates_.end()) std::nth_element(first, last, candidates_.end(), likelier);
    std::sort(first, last, likelier);
    for (auto candidate = first; candidate != last; ++candidate) {
      sum += candidate->weight;
      ++kept;
      if (sum >= top_p * total) break;
    }
  }
  candidates_.resize(kept);
}

TokenId Sampler::sample(std::span<const float> logits, std::span<const TokenId> history,
                        std::uint64_t draw) {
  SINEW_ASSERT(logits.size() == static_cast<std::size_t>(vocabulary_size_));
  const std::span<const float> scores = penalised(logits, history);
  const TokenId best = likeliest(scores);
  if (params_.temperature <= 0.0F || params_.top_k == 1) return best;
  const float largest = clean(scores[static_cast<std::size_t>(best)]);
  if (largest == kImpossible) return best;

  collect(scores, largest);
  keep_top_k();
  for (Candidate& candidate : candidates_) candidate.weight = exp_of_negative(candidate.weight);
  keep_top_p();
  const double min_weight = static_cast<double>(params_.min_p);  // the likeliest weighs 1
  double total = 0.0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight >= min_weight) total += candidate.weight;
  }
  const double target = random_unit(params_.seed, draw) * total;
  double sum = 0.0;
  TokenId drawn = best;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight < min_weight) continue;
    drawn = candidate.token;
    sum += candidate.weight;
    if (sum > target) break;
  }
  return drawn;
}

}  // namespace sinew
