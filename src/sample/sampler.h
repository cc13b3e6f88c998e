#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sinew {

// How a token is drawn from logits. The defaults are greedy.
struct SamplingParams {
  float temperature = 0.0F;        // 0: the largest logit (lowest id among equals)
  int top_k = 0;                   // 0: off
  float top_p = 1.0F;              // 1: off
  float min_p = 0.0F;              // 0: off; relative to the most likely token
  float repeat_penalty = 1.0F;     // 1: off; divides positive, multiplies negative logits of recent tokens
  float presence_penalty = 0.0F;   // subtracted once for every recent token
  float frequency_penalty = 0.0F;  // subtracted for every occurrence of a recent token
  int penalty_window = 64;         // how many recent tokens the penalties look at
  std::uint64_t seed = 0;          // same seed, same logits: same tokens on every machine
};

// kInvalidRequest that names the parameter and its range.
Status check_sampling(const SamplingParams& params);

// Order: penalties, temperature 0 -> greedy; else top-k, temperature, top-p, min-p, draw.
// The random numbers are those of a counter-based generator of (seed, draw index), so a request that is
// prefilled again after a failure continues with the numbers it would have had.
class Sampler {
 public:
  Sampler(const SamplingParams& params, int vocabulary_size);

  // `history`: all tokens so far (prompt and answer). `draw`: index of the token within the answer.
  TokenId sample(std::span<const float> logits, std::span<const TokenId> history, std::uint64_t draw);

 private:
  SamplingParams params_;
  std::vector<float> work_;
  std::vector<std::pair<float, TokenId>> candidates_;
};

}  // namespace sinew
