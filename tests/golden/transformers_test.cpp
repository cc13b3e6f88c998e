// The engine against Hugging Face transformers, on the tiny models of tests/golden/transformers: an
// authority that shares no code with ggml. Each prompt's file says how far llama.cpp is from
// transformers' logits when both round to F16 (the largest of three ways to compute); the engine
// may be three times as far, as sums in another order and another processor's kernels round
// differently. Prompts on which rounding turns a choice of experts were left out when they were
// chosen (transformers/make.py), so no position needs to be excused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "support/logits_program.h"
#include "support/process.h"

namespace sinew::test {
namespace {

using nlohmann::json;

constexpr double kNoiseFactor = 3.0;
const std::string kFolder = SINEW_SOURCE_DIR "/tests/golden/transformers/";

struct Prompt {
  std::vector<TokenId> tokens;
  std::vector<std::size_t> positions;
  std::vector<float> logits;  // of the positions, one row after another
  // llama.cpp's distance to them with F16 weights and cache.
  double logit_error = 0;
  double position_kl = 0;
  double median_kl = 0;
};

struct Family {
  std::size_t vocabulary = 0;
  std::vector<Prompt> prompts;
};

Prompt read_prompt(const json& entry) {
  Prompt prompt;
  prompt.tokens = entry.at("tokens").get<std::vector<TokenId>>();
  prompt.positions = entry.at("positions").get<std::vector<std::size_t>>();
  const json& noise = entry.at("oracle_f16");
  prompt.logit_error = noise.at("max_logit_error").get<double>();
  prompt.position_kl = noise.at("max_kl").get<double>();
  prompt.median_kl = noise.at("median_kl").get<double>();
  return prompt;
}

Result<Family> load(const std::string& name) {
  SINEW_ASSIGN(const std::string text, read_file(kFolder + name + ".json"));
  SINEW_ASSIGN(const std::string raw, read_file(kFolder + name + ".logits"));
  Family family;
  try {
    const json description = json::parse(text);
    family.vocabulary = description.at("vocabulary").get<std::size_t>();
    for (const json& entry : description.at("prompts"))
      family.prompts.push_back(read_prompt(entry));
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidFile, "{}.json: {}", name, error.what());
  }
  std::size_t from = 0;
  for (Prompt& prompt : family.prompts) {
    prompt.logits.resize(prompt.positions.size() * family.vocabulary);
    const std::size_t bytes = prompt.logits.size() * sizeof(float);
    if (raw.size() - from < bytes)
      return fail(ErrorCode::kInvalidFile, "{}.logits holds {} bytes, too few", name, raw.size());
    std::memcpy(prompt.logits.data(), raw.data() + from, bytes);
    from += bytes;
  }
  if (from != raw.size())
    return fail(ErrorCode::kInvalidFile, "{}.logits holds {} bytes, wanted {}", name, raw.size(),
                from);
  return family;
}

class Transformers : public testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  void SetUp() override {
    auto family = load(name());
    ASSERT_TRUE(family) << family.error().message;
    family_ = std::move(*family);
  }

  static std::string name() { return std::get<0>(GetParam()); }

  std::vector<float> engine_logits(const Prompt& prompt) {
    LogitsRequest request;
    request.model = kFolder + name() + ".gguf";
    request.prompt = prompt.tokens;
    request.all = true;
    request.chunk = std::get<2>(GetParam());
    request.more = {"--ranks", std::to_string(std::get<1>(GetParam()))};
    auto answer = run_logits(SINEW_PROGRAM, request);
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? std::move(answer->logits) : std::vector<float>{};
  }

  // `ours`: of every position of the prompt.
  void compare(const Prompt& prompt, std::span<const float> ours) {
    const std::size_t width = family_.vocabulary;
    ASSERT_EQ(ours.size(), prompt.tokens.size() * width);
    double error = 0;
    std::vector<double> kl;
    for (std::size_t row = 0; row < prompt.positions.size(); ++row) {
      const auto wanted = std::span(prompt.logits).subspan(row * width, width);
      const auto given = ours.subspan(prompt.positions[row] * width, width);
      kl.push_back(kl_divergence(wanted, given));
      double here = 0;
      for (std::size_t i = 0; i < width; ++i)
        here = std::max(here, std::abs(double{wanted[i]} - double{given[i]}));
      error = std::max(error, here);
      EXPECT_LT(here, kNoiseFactor * prompt.logit_error) << "at position " << prompt.positions[row];
      if (arg_max(wanted) != arg_max(given)) {
        EXPECT_LT(best_gap(wanted), 2 * kNoiseFactor * prompt.logit_error)
            << "another best token at position " << prompt.positions[row];
      }
    }
    std::sort(kl.begin(), kl.end());
    EXPECT_LT(kl.back(), kNoiseFactor * prompt.position_kl);
    EXPECT_LT(kl[kl.size() / 2], kNoiseFactor * prompt.median_kl);
    std::printf("%zu tokens: logits within %.4f (llama.cpp %.4f), KL up to %.1e (%.1e)\n",
                prompt.tokens.size(), error, prompt.logit_error, kl.back(), prompt.position_kl);
  }

  Family family_;
};

TEST_P(Transformers, LogitsAgree) {
  for (const Prompt& prompt : family_.prompts) {
    SCOPED_TRACE(testing::Message() << prompt.tokens.size() << " tokens");
    compare(prompt, engine_logits(prompt));
  }
}

constexpr std::array kFamilies{"llama3", "deepseek3"};

INSTANTIATE_TEST_SUITE_P(Families, Transformers,
                         testing::Combine(testing::ValuesIn(kFamilies), testing::Values(1, 2),
                                          testing::Values(512, 33)),
                         [](const auto& given) {
                           std::string name = std::get<0>(given.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_ranks" + std::to_string(std::get<1>(given.param)) +
                                  "_chunk" + std::to_string(std::get<2>(given.param));
                         });

class TransformersFiles : public testing::TestWithParam<const char*> {};

// The goldens are worth something only if they are long enough and rounding is small beside them.
TEST_P(TransformersFiles, HoldLongPromptsAndLivelyLogits) {
  const auto family = load(GetParam());
  ASSERT_TRUE(family) << family.error().message;
  std::size_t longest = 0;
  for (const Prompt& prompt : family->prompts) {
    longest = std::max(longest, prompt.tokens.size());
    ASSERT_FALSE(prompt.positions.empty());
    EXPECT_LT(prompt.positions.back(), prompt.tokens.size());
    double squares = 0;
    for (const float logit : prompt.logits) squares += double{logit} * double{logit};
    const double spread = std::sqrt(squares / static_cast<double>(prompt.logits.size()));
    EXPECT_LT(10 * kNoiseFactor * prompt.logit_error, spread);
  }
  EXPECT_GE(longest, 600U);
}

INSTANTIATE_TEST_SUITE_P(Families, TransformersFiles, testing::ValuesIn(kFamilies),
                         [](const auto& given) {
                           std::string name = given.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sinew::test
