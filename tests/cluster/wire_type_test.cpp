// What a 16-bit wire type costs: KL divergence of the bundled model's predictions from those with
// float32 on the wire, over all positions of the golden conversations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "support/bundled_model.h"
#include "support/generated_model.h"
#include "support/logits_program.h"

namespace sinew::test {
namespace {

// Five times what was measured on the bundled model (docs/measurements.md), so that another
// processor's kernels pass and a lost bit, which costs four times as much, together with it does
// not.
constexpr double kKlMax = 5e-4;

struct Divergence {
  double mean = 0;
  double worst = 0;
};

class WireTypes : public testing::Test {
 protected:
  void SetUp() override {
    const auto model = load_bundled_model();
    ASSERT_TRUE(model) << model.error().message;
    request_.model = model->path;
    request_.all = true;
    for (const GoldenPrompt& prompt : model->prompts) {
      request_.prompt.insert(request_.prompt.end(), prompt.tokens.begin(), prompt.tokens.end());
      request_.prompt.insert(request_.prompt.end(), prompt.torch_greedy.begin(),
                             prompt.torch_greedy.end());
    }
  }

  std::vector<float> logits(const std::vector<std::string>& flags) {
    request_.more = flags;
    auto answer = run_logits(SINEW_PROGRAM, request_);
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? std::move(answer->logits) : std::vector<float>();
  }

  Divergence divergence(const std::vector<float>& reference, const std::vector<float>& other) {
    Divergence result;
    EXPECT_EQ(reference.size(), other.size());
    if (reference.size() != other.size() || reference.empty()) return result;
    const std::size_t positions = request_.prompt.size();
    const std::size_t vocabulary = reference.size() / positions;
    for (std::size_t i = 0; i < positions; ++i) {
      const double kl = kl_divergence(std::span(reference).subspan(i * vocabulary, vocabulary),
                                      std::span(other).subspan(i * vocabulary, vocabulary));
      result.mean += kl / static_cast<double>(positions);
      result.worst = std::max(result.worst, kl);
    }
    return result;
  }

  LogitsRequest request_;
};

// Printed for scale: what the order of sums alone moves (one rank against four).
TEST_F(WireTypes, MovePredictionsByLittle) {
  const std::vector<float> exact = logits({"--ranks", "4"});
  const Divergence order = divergence(exact, logits({"--ranks", "1"}));
  const Divergence bf16 = divergence(exact, logits({"--ranks", "4", "--wire", "bf16"}));
  const Divergence f16 = divergence(exact, logits({"--ranks", "4", "--wire", "f16"}));
  std::printf(
      "%zu positions; KL mean and worst, nats: order of sums %.2e %.2e, bf16 %.2e %.2e, "
      "f16 %.2e %.2e\n",
      request_.prompt.size(), order.mean, order.worst, bf16.mean, bf16.worst, f16.mean, f16.worst);
  EXPECT_GT(bf16.mean, 0) << "nothing was rounded";
  EXPECT_GT(f16.mean, 0) << "nothing was rounded";
  EXPECT_LT(bf16.mean, kKlMax);
  EXPECT_LT(f16.mean, kKlMax);
}

// Kernels for eight-bit weights round activations to eight bits, which hides how much finer f16 is.
// With float32 weights its three more bits must show: by 4^3 if nothing else rounded, and not by
// less than ten.
TEST_F(WireTypes, F16IsFarNearerThanBf16WhereKernelsDoNotRound) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-llama", "f32", 1024);
  ASSERT_TRUE(model) << model.error().message;
  request_.model = *model;
  request_.prompt.clear();
  for (TokenId i = 0; i < 200; ++i) request_.prompt.push_back(i * 37 % 200);
  const std::vector<float> exact = logits({"--ranks", "4"});
  const Divergence bf16 = divergence(exact, logits({"--ranks", "4", "--wire", "bf16"}));
  const Divergence f16 = divergence(exact, logits({"--ranks", "4", "--wire", "f16"}));
  std::printf("KL mean, nats: bf16 %.2e, f16 %.2e\n", bf16.mean, f16.mean);
  EXPECT_GT(f16.mean, 0);
  EXPECT_LT(f16.mean, bf16.mean / 10);
  EXPECT_LT(bf16.mean, kKlMax);
}

// All algorithms round alike, so it does not matter which one a measurement prefers.
TEST_F(WireTypes, GiveTheSameLogitsByEveryAlgorithm) {
  for (const char* wire : {"f32", "bf16", "f16"}) {
    const auto one_shot = logits({"--ranks", "3", "--wire", wire, "--one-shot-max", "1000000000"});
    const auto two_phase =
        logits({"--ranks", "3", "--wire", wire, "--one-shot-max", "0", "--link", "tcp"});
    EXPECT_TRUE(one_shot == two_phase) << wire;
  }
}

TEST_F(WireTypes, UnknownName_IsUsage) {
  request_.more = {"--ranks", "2", "--wire", "fp8"};
  const auto answer = run_logits(SINEW_PROGRAM, request_);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("there are f32, bf16 and f16"), std::string::npos)
      << answer.error().message;
}

}  // namespace
}  // namespace sinew::test
