// A real model of others, SmolLM2-135M-Instruct in Q4_1 (Apache 2.0), on 1 to 4 ranks against
// llama.cpp. smollm2.sh fetches it and names it in SINEW_SMOLLM2; without it the tests are skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "oracle/comparison.h"
#include "support/greedy_match.h"
#include "support/oracle.h"

namespace sinew::test {
namespace {

// Three times the noise of llama.cpp against itself on this prompt (see logits_oracle_test.cpp for
// how): median KL 3.2e-3, a position's KL 3.2e-2. Its own greedy answer turned at token 19, where
// its best two are 0.33 apart (older processor's kernels, no flash attention); the gap may be 1.5
// times that.
constexpr Tolerance kSmolLm2{1e-2, 1e-1, 0.0, 0.50};

class SmolLm2Oracle : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const char* path = std::getenv("SINEW_SMOLLM2");
    if (path == nullptr)
      GTEST_SKIP() << "SINEW_SMOLLM2 names no model: run tests/oracle/smollm2.sh";
    const std::vector<std::string> chats{
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is the capital of France, and which river flows "
        "through "
        "it?<|im_end|>\n<|im_start|>assistant\n"};
    const auto tokens = Oracle::tokenize(path, chats, true, true);
    ASSERT_TRUE(tokens) << tokens.error().message;
    request_.model = path;
    request_.prompt = tokens->front();
    request_.all = true;
    request_.generate = 32;
    oracle_request_ = request_;
    request_.more = {"--ranks", std::to_string(GetParam())};
  }
  LogitsRequest request_;
  LogitsRequest oracle_request_;
};

TEST_P(SmolLm2Oracle, LogitsAndGreedyTokensAgree) {
  const auto oracle = Oracle::run(oracle_request_);
  ASSERT_TRUE(oracle) << oracle.error().message;
  const auto ours = run_logits(SINEW_PROGRAM, request_);
  ASSERT_TRUE(ours) << ours.error().message;
  Comparison comparison(kSmolLm2);
  comparison.add(oracle->logits, ours->logits, request_.prompt.size());
  comparison.judge();
  const GreedyMatch match = match_greedy(oracle->greedy, ours->greedy);
  if (!match.differs_at) return;
  std::printf("token %zu differs, the oracle's gap is %.4f\n", *match.differs_at, match.gap);
  EXPECT_TRUE(match.excused(kSmolLm2.gap));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SmolLm2Oracle, testing::Values(1, 2, 3, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace sinew::test
