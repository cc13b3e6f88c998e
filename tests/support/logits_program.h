#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sinew::test {

// `sinew logits` and `sinew-oracle logits` share one command line, so one function runs both.
struct LogitsRequest {
  std::string model;
  std::vector<TokenId> prompt;
  bool all = false;  // the logits of every position, else of the last one
  int generate = 0;  // greedy tokens after the prompt; an end-of-text token does not stop them
  int context = 0;   // 0: as many as the request needs
  int chunk = 512;   // tokens of one prefill step
  int threads = 1;
  std::vector<std::string> more;  // flags that one of the two programs alone has
  std::chrono::seconds limit{120};
};

struct GreedyToken {
  TokenId id = 0;
  double gap = 0;  // between the best two logits, so >= 0
};

struct LogitsAnswer {
  std::vector<float> logits;  // of one position after another
  std::vector<GreedyToken> greedy;
};

Result<LogitsAnswer> run_logits(const std::string& program, const LogitsRequest& request);

// KL(reference || other) in nats, of the two softmaxes in double precision. Both of the same size.
double kl_divergence(std::span<const float> reference, std::span<const float> other);
std::size_t arg_max(std::span<const float> logits);
// Between the best and the second best.
double best_gap(std::span<const float> logits);

}  // namespace sinew::test
