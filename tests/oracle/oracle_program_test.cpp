// The oracle's own commands, which other tests trust.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "support/generated_model.h"
#include "support/oracle.h"
#include "support/process.h"

namespace sinew::test {
namespace {

std::vector<TokenId> random_prompt(std::size_t length) {
  std::mt19937 random(1);
  std::vector<TokenId> tokens;
  while (tokens.size() < length) tokens.push_back(static_cast<TokenId>(random() % 256));
  return tokens;
}

std::vector<float> logits_of(LogitsRequest request, const std::vector<std::string>& flags) {
  request.more.insert(request.more.end(), flags.begin(), flags.end());
  auto answer = Oracle::run(request);
  EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
  return answer ? std::move(answer->logits) : std::vector<float>{};
}

struct Cache {
  const char* kind;
  bool rotated;  // keys whose width is no multiple of 64 are not
  friend void PrintTo(const Cache& cache, std::ostream* out) { *out << cache.kind; }
};

class OracleCache : public testing::TestWithParam<Cache> {};

// The fewer bits of a key and a value are kept, the further the logits are from those of float32
// (which flash attention would turn to float16).
TEST_P(OracleCache, FewerBitsLoseMore) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, GetParam().kind, "f16", 4096);
  ASSERT_TRUE(model) << model.error().message;
  LogitsRequest request;
  request.model = *model;
  request.prompt = random_prompt(300);
  const std::vector<float> exact = logits_of(request, {"--cache-type", "f32", "--no-flash"});
  ASSERT_FALSE(exact.empty());
  double before = 0;
  for (const char* type : {"f16", "q8_0", "q4_0"}) {
    const std::vector<float> logits = logits_of(request, {"--cache-type", type});
    ASSERT_EQ(logits.size(), exact.size()) << type;
    const double loss = kl_divergence(exact, logits);
    std::printf("%s: KL %.2e\n", type, loss);
    EXPECT_GT(loss, before) << type;
    before = loss;
  }
  const auto rotated = logits_of(request, {"--cache-type", "q4_0"});
  const auto plain = logits_of(request, {"--cache-type", "q4_0", "--no-rotation"});
  EXPECT_EQ(plain != rotated, GetParam().rotated);
}

INSTANTIATE_TEST_SUITE_P(Kinds, OracleCache,
                         testing::Values(Cache{"tiny-llama", true}, Cache{"tiny-ds", false},
                                         Cache{"tiny-gemma3", true}),
                         [](const auto& given) {
                           std::string name = given.param.kind;
                           name[4] = '_';
                           return name;
                         });

TEST(OracleProgram, RefusesACacheTypeThatItDoesNotKnow) {
  const auto result = run_process({Oracle::program(), "perplexity", "/nonexistent", "--tokens",
                                   "/nonexistent", "--cache-type", "q9_9"},
                                  {}, std::chrono::seconds(20));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_NE(result->exit_status, 0);
  EXPECT_NE(result->err.find("q9_9"), std::string::npos) << result->err;
}

// Windows, one of them shorter, and chunks that cut them; the sum over the logits is done twice.
TEST(OracleProgram, PerplexityIsThatOfItsLogits) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-llama", "f16", 4096);
  ASSERT_TRUE(model) << model.error().message;
  LogitsRequest request;
  request.model = *model;
  request.prompt = random_prompt(450);
  request.chunk = 65;
  const auto program = Oracle::perplexity(*model, request.prompt, 131, {"--chunk", "65"});
  ASSERT_TRUE(program) << program.error().message;
  const auto logits = perplexity_by_logits(Oracle::program(), request, 131);
  ASSERT_TRUE(logits) << logits.error().message;
  EXPECT_NEAR(*program / *logits, 1.0, 1e-5);  // six digits are written
  // Random tokens surprise a model with random weights more than a uniform guess of 320 would.
  EXPECT_GT(*program, 320);
}

// Only the last rows are written: whatever the chunks, the same logits. F16
// moves a logit by 0.014 at most between chunk sizes (logits_oracle_test.cpp).
TEST(OracleProgram, LongPromptsGiveTheirLastRows) {
  constexpr std::size_t kLength = 2100;
  constexpr int kRows = 64;
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-llama", "f16", 8192);
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<TokenId> prompt = random_prompt(kLength);
  const auto a = Oracle::last_logits(*model, prompt, kRows, 512);
  ASSERT_TRUE(a) << a.error().message;
  const auto b = Oracle::last_logits(*model, prompt, kRows, 2048);
  ASSERT_TRUE(b) << b.error().message;
  ASSERT_EQ(a->size(), b->size());
  ASSERT_EQ(a->size() % kRows, 0U);
  for (std::size_t i = 0; i < a->size(); ++i) ASSERT_NEAR((*a)[i], (*b)[i], 0.03);
}

}  // namespace
}  // namespace sinew::test
