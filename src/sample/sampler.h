#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sinew {

// How a token is drawn from logits. The defaults are greedy.
struct SamplingParams {
  float temperature = 0.0F;  // 0: the largest logit (lowest id among equals)
  int top_k = 0;             // 0: off
  float top_p = 1.0F;        // 1: off
  float min_p = 0.0F;        // 0: off; relative to the most likely token
  float repeat_penalty =
      1.0F;  // 1: off; divides positive, multiplies negative logits of recent tokens
  float presence_penalty = 0.0F;   // subtracted once for every recent token
  float frequency_penalty = 0.0F;  // subtracted for every occurrence of a recent token
  int penalty_window = 64;         // how many recent tokens the penalties look at
  std::uint64_t seed = 0;          // same seed, same logits: same tokens on every machine
};

// kInvalidRequest that names the parameter and its range.
Status check_sampling(const SamplingParams& params);

// Order: penalties, temperature 0 -> greedy; else top-k, temperature, top-p, min-p, draw.
// The random numbers are those of a counter-based generator of (seed, draw index), so a request
// that is prefilled again after a failure continues with the numbers it would have had.
//
// Every logit is a number or -infinity here: NaN counts as -infinity (never drawn while another
// token can be), +infinity as the largest float. If no token is possible, token 0 is returned.
// Probabilities are computed in double from +, -, *, / and a polynomial of our own, without the C
// library's exp, so equal logits give equal tokens on every machine with IEEE arithmetic. A token
// that is 2^-64 times as likely as the likeliest is below the resolution of a draw and is left out.
class Sampler {
 public:
  Sampler(const SamplingParams& params, int vocabulary_size);

  // `history`: all tokens so far (prompt and answer). `draw`: index of the token within the answer.
  TokenId sample(std::span<const float> logits, std::span<const TokenId> history,
                 std::uint64_t draw);

 private:
  std::span<const float> penalised(std::span<const float> logits, std::span<const TokenId> history);
  void collect(std::span<const float> logits, float largest);
  void keep_top_k();
  void keep_top_p();

  SamplingParams params_;
  int vocabulary_size_;
  std::vector<float> work_;      // logits after penalties; empty while no penalty is set
  std::vector<TokenId> recent_;  // the tokens that the penalties look at, sorted

  // A token that may be drawn: `weight` is its probability relative to the likeliest token's.
  struct Candidate {
    float logit;
    TokenId token;
    double weight;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace sinew
