// gpt-oss's YaRN, whose borders are not rounded: ggml's, which are, is another model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/tiny_model.h"

namespace sinew {
namespace {

// Of the published configurations.
constexpr int kDimensions = 64;
constexpr std::size_t kPairs = kDimensions / 2;
constexpr double kBase = 150000;
constexpr double kFactor = 32;
constexpr double kContext = 4096;
constexpr double kBetaFast = 32;
constexpr double kBetaSlow = 1;

test::GgufWriter gpt_oss() {
  ModelSpec spec = test::tiny_grouped_spec("gpt-oss", Family::kGptOss, 4);
  spec.key_dimensions = spec.value_dimensions = spec.rope.dimensions = kDimensions;
  spec.window.size = 16;
  spec.window.layers = {true, false};
  test::GgufWriter writer = test::tiny_metadata(spec);
  writer.add("gpt-oss.rope.freq_base", static_cast<float>(kBase));
  // As many tensors as a file with these layers has at least.
  writer.tensor("token_embd.weight", TensorType::kF16, {64, 96});
  for (const char* name : {"blk.0.a", "blk.1.a"}) writer.tensor(name, TensorType::kF32, {1});
  return writer;
}

test::GgufWriter gpt_oss_with_yarn() {
  test::GgufWriter writer = gpt_oss();
  writer.add("gpt-oss.rope.scaling.type", "yarn")
      .add("gpt-oss.rope.scaling.factor", static_cast<float>(kFactor))
      .add("gpt-oss.rope.scaling.original_context_length", static_cast<std::uint32_t>(kContext));
  return writer;
}

Result<ModelSpec> read(const test::GgufWriter& writer) {
  const test::Bytes file = writer.bytes();
  const GgufPart part{"m.gguf", file};
  SINEW_ASSIGN(const GgufModel model, GgufModel::parse(std::span(&part, 1)));
  return read_spec(model);
}

// How often a pair of elements turns within the original context says how much of its frequency is
// kept: all of it from beta_fast turns on, nothing below beta_slow, and between them as much as the
// logarithm says.
double expected_divisor(std::size_t pair, double base) {
  const double power = 2.0 * static_cast<double>(pair) / kDimensions;
  const double turns = kContext / (2 * std::acos(-1.0) * std::pow(base, power));
  const double kept =
      std::clamp(std::log(turns / kBetaSlow) / std::log(kBetaFast / kBetaSlow), 0.0, 1.0);
  return 1 / (kept + (1 - kept) / kFactor);
}

void expect_unrounded(const RopeSpec& rope, double base) {
  ASSERT_EQ(rope.divisors.size(), kPairs);
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    const double expected = expected_divisor(pair, base);
    // Rounding to float; both sides compute in double.
    EXPECT_NEAR(rope.divisors[pair], expected, 1e-7 * expected) << pair;
  }
  // Nothing is left for ggml to scale, and it no longer multiplies by YaRN's factor itself.
  EXPECT_EQ(rope.scale, 1.0F);
  EXPECT_EQ(rope.extrapolation, 0.0F);
  EXPECT_FLOAT_EQ(rope.attention_factor, static_cast<float>(1 + 0.1 * std::log(kFactor)));
}

TEST(GptOssYarn, DividesFrequenciesByTheirTurnsAlone) {
  const auto spec = read(gpt_oss_with_yarn());
  ASSERT_TRUE(spec) << spec.error().message;
  expect_unrounded(spec->rope, kBase);
  expect_unrounded(spec->window.rope, kBase);
  // The borders are 8.09 and 17.40. Rounded to 8 and 18, pair 17 would keep a tenth.
  EXPECT_EQ(spec->rope.divisors[8], 1.0F);
  EXPECT_EQ(spec->rope.divisors[18], static_cast<float>(kFactor));
  const double rounded = 0.1 + 0.9 / kFactor;
  EXPECT_GT(rounded * double{spec->rope.divisors[17]}, 1.7);
}

TEST(GptOssYarn, WindowedLayersOfAnotherBaseHaveTheirOwnBorders) {
  constexpr double kWindowBase = 10000;
  test::GgufWriter writer = gpt_oss_with_yarn();
  writer.add("gpt-oss.rope.freq_base_swa", static_cast<float>(kWindowBase));
  const auto spec = read(writer);
  ASSERT_TRUE(spec) << spec.error().message;
  expect_unrounded(spec->rope, kBase);
  expect_unrounded(spec->window.rope, kWindowBase);
}

TEST(GptOssYarn, AFilesOwnFactorIsMultiplied) {
  test::GgufWriter writer = gpt_oss_with_yarn();
  writer.add("gpt-oss.rope.scaling.attn_factor", 0.5F);
  const auto spec = read(writer);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_FLOAT_EQ(spec->rope.attention_factor, static_cast<float>(0.5 + 0.05 * std::log(kFactor)));
}

// Linear and absent scalings are ggml's business.
TEST(GptOssYarn, OtherScalingsHaveNoDivisors) {
  test::GgufWriter linear = gpt_oss();
  linear.add("gpt-oss.rope.scaling.factor", static_cast<float>(kFactor));
  for (const test::GgufWriter& writer : {gpt_oss(), linear}) {
    const auto spec = read(writer);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_TRUE(spec->rope.divisors.empty());
    EXPECT_TRUE(spec->window.rope.divisors.empty());
    EXPECT_EQ(spec->rope.attention_factor, 1.0F);
  }
}

// No number that a file may hold makes them anything but numbers.
TEST(GptOssYarn, OddNumbersGiveFiniteDivisors) {
  const auto finite = [](const test::GgufWriter& writer) {
    const auto spec = read(writer);
    ASSERT_TRUE(spec) << spec.error().message;
    for (const RopeSpec& rope : {spec->rope, spec->window.rope}) {
      ASSERT_EQ(rope.divisors.size(), kPairs);
      for (const float divisor : rope.divisors) EXPECT_TRUE(std::isfinite(divisor));
    }
  };
  for (const float beta : {0.0F, -1.0F, 1.0F, 1e30F}) {
    SCOPED_TRACE(beta);
    test::GgufWriter writer = gpt_oss_with_yarn();
    writer.add("gpt-oss.rope.scaling.yarn_beta_fast", beta)
        .add("gpt-oss.rope.scaling.yarn_beta_slow", beta);
    finite(writer);
  }
  test::GgufWriter base = gpt_oss_with_yarn();
  base.add("gpt-oss.rope.freq_base_swa", 1.0F);
  finite(base);
}

}  // namespace
}  // namespace sinew
