// Perplexity of real models of others on a text in the public domain, on 1 and 4 ranks against
// llama.cpp. smollm2.sh and gemma3.sh fetch the models and name them in the environment; without
// that the tests are skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "support/oracle.h"

namespace sinew::test {
namespace {

struct RealModel {
  const char* name;
  const char* variable;  // of the environment: the file
  const char* script;
  std::size_t window;  // tokens; their logits fit into a few hundred MiB
  friend void PrintTo(const RealModel& given, std::ostream* out) { *out << given.name; }
};
constexpr RealModel kSmolLm2{"SmolLM2", "SINEW_SMOLLM2", "tests/oracle/smollm2.sh", 512};
constexpr RealModel kGemma3{"Gemma3", "SINEW_GEMMA3", "tests/oracle/gemma3.sh", 256};

// What is promised to users. A mean over thousands of tokens, in which the noise of single logits
// cancels: llama.cpp's own is the same to seven digits for chunks of 64 and of 512 tokens.
constexpr double kShareMax = 0.005;
constexpr std::size_t kTokensMax = 2048;

// The text's tokens for windows of `window`. Where the model wants BOS, each window begins with it:
// Gemma 3 without one is far from all it was trained on, and its perplexity then moves by several
// per cent with the order of the sums.
Result<std::vector<TokenId>> windows_of(const char* path, std::size_t window) {
  std::ifstream stream(SINEW_SOURCE_DIR "/tests/oracle/corpus/coriolanus.txt", std::ios::binary);
  const std::vector<std::string> texts{std::string{std::istreambuf_iterator<char>(stream), {}}};
  SINEW_ASSIGN(const auto with_bos, Oracle::tokenize(path, texts, false, true));
  SINEW_ASSIGN(const auto plain, Oracle::tokenize(path, texts, false, false));
  const bool wants_bos = with_bos.front().size() > plain.front().size();
  std::vector<TokenId> tokens;
  for (const TokenId token : plain.front()) {
    if (tokens.size() == kTokensMax) break;
    if (wants_bos && tokens.size() % window == 0) tokens.push_back(with_bos.front().front());
    tokens.push_back(token);
  }
  return tokens;
}

class Perplexity : public testing::TestWithParam<std::tuple<RealModel, int>> {};

TEST_P(Perplexity, IsThatOfLlamaCpp) {
  const auto& [model, ranks] = GetParam();
  const char* path = std::getenv(model.variable);
  if (path == nullptr) GTEST_SKIP() << model.variable << " names no model: run " << model.script;
  const auto tokens = windows_of(path, model.window);
  ASSERT_TRUE(tokens) << tokens.error().message;
  ASSERT_EQ(tokens->size(), kTokensMax);

  LogitsRequest request;
  request.model = path;
  request.prompt = *tokens;
  request.more = {"--ranks", std::to_string(ranks)};
  request.limit = std::chrono::seconds(300);
  const auto oracle = Oracle::perplexity(path, request.prompt, model.window);
  ASSERT_TRUE(oracle) << oracle.error().message;
  const auto ours = perplexity_by_logits(SINEW_PROGRAM, request, model.window);
  ASSERT_TRUE(ours) << ours.error().message;
  std::printf("%s, %d ranks, %zu tokens: perplexity %.4f, llama.cpp's %.4f (%+.3f %%)\n",
              model.name, ranks, request.prompt.size(), *ours, *oracle,
              100 * (*ours / *oracle - 1));
  EXPECT_NEAR(*ours / *oracle, 1.0, kShareMax);
  // A model that predicts nothing has the size of its vocabulary.
  EXPECT_LT(*ours, 1000);
}

INSTANTIATE_TEST_SUITE_P(RealModels, Perplexity,
                         testing::Combine(testing::Values(kSmolLm2, kGemma3),
                                          testing::Values(1, 4)),
                         [](const auto& given) {
                           return std::string(std::get<0>(given.param).name) + "_" +
                                  std::to_string(std::get<1>(given.param)) + "_ranks";
                         });

}  // namespace
}  // namespace sinew::test
