// The engine against Hugging Face transformers, on the tiny models of tests/golden/transformers: an
// authority that shares no code with ggml. How far rounding to F16 may move a prompt's logits is
// written in its file, as the larger of two measurements: transformers with relative errors of
// 2^-10 in the input of each layer, and llama.cpp with F16 weights and cache, computed in three
// ways. The engine may be twice as far (KL grows with the square of the error: four times), for
// kernels of another processor, which sum in another order. Prompts on which rounding turns a
// choice of experts were left out when they were chosen (make.py), so no position is excused.
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

constexpr double kErrorFactor = 2.0;
constexpr double kDivergenceFactor = kErrorFactor * kErrorFactor;
const std::string kFolder = SINEW_SOURCE_DIR "/tests/golden/transformers/";
constexpr std::array kFamilies{"llama3",  "deepseek3", "deepseek2",  "deepseek2-lite",
                               "qwen2",   "qwen3",     "qwen3moe",   "glm4moe",
                               "gpt-oss", "gemma3",    "minimax-m2", "deepseek32"};

struct Distance {
  double logit = 0;      // largest error of a logit
  double kl = 0;         // largest of a position
  double median_kl = 0;  // of all positions
};

struct Prompt {
  std::vector<TokenId> tokens;
  std::vector<std::size_t> positions;
  std::vector<float> logits;  // of the positions, one row after another
  Distance noise;
};

struct Model {
  std::size_t vocabulary = 0;
  std::vector<Prompt> prompts;
};

Prompt read_prompt(const json& entry) {
  const auto larger = [&](const char* key) {
    return std::max(entry.at("noise").at(key).get<double>(),
                    entry.at("oracle_f16").at(key).get<double>());
  };
  Prompt prompt;
  prompt.tokens = entry.at("tokens").get<std::vector<TokenId>>();
  prompt.positions = entry.at("positions").get<std::vector<std::size_t>>();
  prompt.noise = {larger("max_logit_error"), larger("max_kl"), larger("median_kl")};
  return prompt;
}

Result<Model> load(const std::string& name) {
  SINEW_ASSIGN(const std::string text, read_file(kFolder + name + ".json"));
  SINEW_ASSIGN(const std::string raw, read_file(kFolder + name + ".logits"));
  Model model;
  try {
    const json description = json::parse(text);
    model.vocabulary = description.at("vocabulary").get<std::size_t>();
    for (const json& entry : description.at("prompts")) model.prompts.push_back(read_prompt(entry));
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidFile, "{}.json: {}", name, error.what());
  }
  std::size_t from = 0;
  for (Prompt& prompt : model.prompts) {
    const std::size_t bytes = prompt.positions.size() * model.vocabulary * sizeof(float);
    if (raw.size() - from < bytes)
      return fail(ErrorCode::kInvalidFile, "{}.logits holds {} bytes, too few", name, raw.size());
    prompt.logits.resize(bytes / sizeof(float));
    std::memcpy(prompt.logits.data(), raw.data() + from, bytes);
    from += bytes;
  }
  if (from != raw.size())
    return fail(ErrorCode::kInvalidFile, "{}.logits holds {} bytes, not {}", name, raw.size(),
                from);
  return model;
}

// Of every position of the prompt.
Result<std::vector<float>> engine_logits(const std::string& path, const Prompt& prompt, int ranks,
                                         int chunk) {
  LogitsRequest request;
  request.model = path;
  request.prompt = prompt.tokens;
  request.all = true;
  request.chunk = chunk;
  request.more = {"--ranks", std::to_string(ranks)};
  SINEW_ASSIGN(LogitsAnswer answer, run_logits(SINEW_PROGRAM, request));
  const std::size_t width = prompt.logits.size() / prompt.positions.size();
  if (answer.logits.size() != prompt.tokens.size() * width)
    return fail(ErrorCode::kInternal, "sinew wrote {} logits for {} tokens", answer.logits.size(),
                prompt.tokens.size());
  return std::move(answer.logits);
}

// `ours`: of every position of the prompt.
Distance distance(const Prompt& prompt, std::span<const float> ours) {
  const std::size_t width = prompt.logits.size() / prompt.positions.size();
  Distance found;
  std::vector<double> kl;
  for (std::size_t row = 0; row < prompt.positions.size(); ++row) {
    const auto wanted = std::span(prompt.logits).subspan(row * width, width);
    const auto given = ours.subspan(prompt.positions[row] * width, width);
    kl.push_back(kl_divergence(wanted, given));
    for (std::size_t i = 0; i < width; ++i)
      found.logit = std::max(found.logit, std::abs(double{wanted[i]} - double{given[i]}));
  }
  std::sort(kl.begin(), kl.end());
  found.kl = kl.back();
  found.median_kl = kl[kl.size() / 2];
  return found;
}

void expect_near(const Prompt& prompt, const Distance& found) {
  EXPECT_LT(found.logit, kErrorFactor * prompt.noise.logit);
  EXPECT_LT(found.kl, kDivergenceFactor * prompt.noise.kl);
  EXPECT_LT(found.median_kl, kDivergenceFactor * prompt.noise.median_kl);
  std::printf("%zu tokens: logits within %.4f (noise %.4f), KL up to %.1e (%.1e)\n",
              prompt.tokens.size(), found.logit, prompt.noise.logit, found.kl, prompt.noise.kl);
}

std::string test_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

using Case = std::tuple<const char*, int, int>;  // family, ranks, tokens of a chunk

class Transformers : public testing::TestWithParam<Case> {};

TEST_P(Transformers, LogitsAgree) {
  const auto [name, ranks, chunk] = GetParam();
  const auto model = load(name);
  ASSERT_TRUE(model) << model.error().message;
  for (const Prompt& prompt : model->prompts) {
    SCOPED_TRACE(testing::Message() << prompt.tokens.size() << " tokens");
    const auto ours = engine_logits(kFolder + name + ".gguf", prompt, ranks, chunk);
    ASSERT_TRUE(ours) << ours.error().message;
    expect_near(prompt, distance(prompt, *ours));
  }
}

std::string case_name(const testing::TestParamInfo<Case>& given) {
  const auto [name, ranks, chunk] = given.param;
  return test_name(name) + "_ranks" + std::to_string(ranks) + "_chunk" + std::to_string(chunk);
}

INSTANTIATE_TEST_SUITE_P(Families, Transformers,
                         testing::Combine(testing::ValuesIn(kFamilies), testing::Values(1, 2),
                                          testing::Values(512, 33)),
                         case_name);

class TransformersFiles : public testing::TestWithParam<const char*> {};

// The goldens are worth something only if they are long enough and rounding is small beside the
// spread of the logits, by which a wrong model moves them.
TEST_P(TransformersFiles, HoldLongPromptsAndLivelyLogits) {
  const auto model = load(GetParam());
  ASSERT_TRUE(model) << model.error().message;
  std::size_t longest = 0;
  for (const Prompt& prompt : model->prompts) {
    longest = std::max(longest, prompt.tokens.size());
    ASSERT_FALSE(prompt.positions.empty());
    EXPECT_LT(prompt.positions.back(), prompt.tokens.size());
    double squares = 0;
    for (const float logit : prompt.logits) squares += double{logit} * double{logit};
    const double spread = std::sqrt(squares / static_cast<double>(prompt.logits.size()));
    EXPECT_LT(4 * kErrorFactor * prompt.noise.logit, spread);
  }
  EXPECT_GE(longest, 600U);
}

INSTANTIATE_TEST_SUITE_P(Families, TransformersFiles, testing::ValuesIn(kFamilies),
                         [](const auto& given) { return test_name(given.param); });

// A model that is read slightly wrong, as a file in which one number differs.
struct Change {
  const char* family;
  const char* key;
  double from;  // what the file holds
  double to;
  friend void PrintTo(const Change& given, std::ostream* out) {
    *out << given.family << ' ' << given.key;
  }
};

// A number in a GGUF file is its key, a type of four bytes and its value, here of four bytes too.
template <typename Number>
bool replace(std::string& bytes, const std::string& key, double from, double to) {
  const std::size_t place = bytes.find(key);
  if (place == std::string::npos) return false;
  char* value = bytes.data() + place + key.size() + sizeof(std::uint32_t);
  const auto expected = static_cast<Number>(from);
  const auto changed = static_cast<Number>(to);
  if (std::memcmp(value, &expected, sizeof expected) != 0) return false;
  std::memcpy(value, &changed, sizeof changed);
  return true;
}

// Windows and choices of cells show in prompts of more than a few hundred tokens only.
const Prompt& steadiest_long_prompt(const Model& model) {
  return *std::min_element(model.prompts.begin(), model.prompts.end(),
                           [](const Prompt& a, const Prompt& b) {
                             const bool a_short = a.tokens.size() < 600;
                             const bool b_short = b.tokens.size() < 600;
                             if (a_short != b_short) return b_short;
                             return a.noise.logit < b.noise.logit;
                           });
}

class TransformersNotice : public testing::TestWithParam<Change> {};

TEST_P(TransformersNotice, ASlightlyWrongModel) {
  const Change& change = GetParam();
  const auto model = load(change.family);
  ASSERT_TRUE(model) << model.error().message;
  auto bytes = read_file(kFolder + change.family + ".gguf");
  ASSERT_TRUE(bytes) << bytes.error().message;
  ASSERT_TRUE(replace<std::uint32_t>(*bytes, change.key, change.from, change.to) ||
              replace<float>(*bytes, change.key, change.from, change.to))
      << "the file has no such key with that value";
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.file("wrong.gguf"), *bytes));
  const Prompt& prompt = steadiest_long_prompt(*model);
  const auto ours = engine_logits(folder.file("wrong.gguf"), prompt, 1, 512);
  ASSERT_TRUE(ours) << ours.error().message;
  const Distance found = distance(prompt, *ours);
  std::printf("logits move by %.2f, %.0f times the noise\n", found.logit,
              found.logit / prompt.noise.logit);
  EXPECT_GT(found.logit, 2 * kErrorFactor * prompt.noise.logit);
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, TransformersNotice,
    testing::Values(Change{"gpt-oss", "gpt-oss.attention.sliding_window", 128, 127},
                    Change{"gemma3", "gemma3.attention.sliding_window", 128, 129},
                    Change{"gemma3", "gemma3.rope.freq_base_swa", 10000, 11000},
                    Change{"llama3", "llama.rope.freq_base", 500000, 510000},
                    Change{"deepseek3", "deepseek2.rope.scaling.yarn_log_multiplier", 0.1F, 0.08F},
                    Change{"deepseek3", "deepseek2.rope.scaling.factor", 40, 32},
                    Change{"deepseek3", "deepseek2.expert_group_used_count", 2, 3},
                    Change{"deepseek2", "deepseek2.expert_group_used_count", 2, 3},
                    Change{"deepseek2-lite", "deepseek2.expert_gating_func", 1, 2},
                    Change{"deepseek2-lite", "deepseek2.rope.scaling.yarn_log_multiplier", 0.0707F,
                           0.1F},
                    Change{"deepseek32", "deepseek32.attention.indexer.top_k", 256, 512},
                    Change{"gpt-oss", "gpt-oss.rope.scaling.original_context_length", 4096, 8192},
                    Change{"glm4moe", "glm4moe.expert_weights_scale", 2.5, 2.25},
                    Change{"glm4moe", "glm4moe.rope.dimension_count", 16, 32},
                    Change{"minimax-m2", "minimax-m2.rope.dimension_count", 16, 32}),
    [](const testing::TestParamInfo<Change>& given) {
      std::string name = std::string(given.param.family) + "_" + given.param.key;
      std::replace(name.begin(), name.end(), '.', '_');
      return test_name(name);
    });

}  // namespace
}  // namespace sinew::test
