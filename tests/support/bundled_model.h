#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sinew::test {

// models/tiny and its golden.json: see the model's card for what wrote each value.
struct GoldenPrompt {
  std::string text;  // of torch's greedy answer
  std::vector<TokenId> tokens;
  std::vector<std::pair<TokenId, double>> torch_best;  // the ten best logits of the last position
  std::vector<TokenId> torch_greedy;
  double llama_difference = 0;  // largest difference of llama.cpp's logits from torch's
  bool llama_same_greedy = false;
};

struct BundledModel {
  std::string path;
  TokenId end_token = 0;
  std::vector<GoldenPrompt> prompts;
};

Result<BundledModel> load_bundled_model();

}  // namespace sinew::test
