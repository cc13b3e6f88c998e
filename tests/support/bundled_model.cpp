#include "support/bundled_model.h"

#include <nlohmann/json.hpp>

#include "support/process.h"

namespace sinew::test {
namespace {

using nlohmann::json;

BundledModel from_json(const json& golden) {
  BundledModel model;
  model.path = SINEW_SOURCE_DIR "/models/tiny/" + golden.at("model").get<std::string>();
  model.end_token = golden.at("eos").get<TokenId>();
  for (const json& entry : golden.at("prompts")) {
    GoldenPrompt prompt;
    prompt.text = entry.at("text").get<std::string>();
    prompt.tokens = entry.at("tokens").get<std::vector<TokenId>>();
    prompt.torch_best = entry.at("torch_top10").get<std::vector<std::pair<TokenId, double>>>();
    prompt.torch_greedy = entry.at("torch_greedy").get<std::vector<TokenId>>();
    prompt.llama_difference = entry.at("max_abs_logit_difference").get<double>();
    prompt.llama_same_greedy = entry.at("same_greedy").get<bool>();
    model.prompts.push_back(std::move(prompt));
  }
  return model;
}

}  // namespace

Result<BundledModel> load_bundled_model() {
  SINEW_ASSIGN(const std::string text, read_file(SINEW_SOURCE_DIR "/models/tiny/golden.json"));
  try {
    return from_json(json::parse(text));
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidFile, "golden.json: {}", error.what());
  }
}

}  // namespace sinew::test
