// The models of `sinew-generate`, judged by llama.cpp alone: it loads each kind, and what is
// special about the kind moves its logits. A comparison of Sinew with llama.cpp on a model proves
// only what that model can show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <set>
#include <sstream>

#include "gguf/reader.h"
#include "support/generated_model.h"
#include "support/gguf_writer.h"
#include "support/oracle.h"

namespace sinew::test {
namespace {

constexpr int kContext = 4096;
constexpr int kPositions = 64;
// Longer than every window and than what an indexer selects.
constexpr std::size_t kPromptLength = 640;

const std::vector<std::string> kKinds{
    "tiny-llama",  "tiny-llama2",    "tiny-llama3",  "tiny-mixtral", "tiny-qwen2",
    "tiny-qwen3",  "tiny-qwen3moe",  "tiny-glm4moe", "tiny-gptoss",  "tiny-minimax",
    "tiny-gemma3", "tiny-ds",        "tiny-kimi",    "tiny-ds-v2",   "tiny-ds-lite",
    "tiny-ds-old", "tiny-moonlight", "tiny-ds32",    "tiny-glm-dsa", "tiny-glm-dsa-shared"};

std::vector<TokenId> random_prompt(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  while (tokens.size() < kPromptLength) tokens.push_back(static_cast<TokenId>(random() % 256));
  return tokens;
}

// One row of logits for each of the last positions.
using Rows = std::vector<std::vector<float>>;

Rows last_rows(const std::string& model, const std::vector<TokenId>& prompt) {
  const auto logits = Oracle::last_logits(model, prompt, kPositions);
  EXPECT_TRUE(logits) << (logits ? "" : logits.error().message);
  Rows rows;
  if (!logits) return rows;
  const std::size_t width = logits->size() / kPositions;
  for (auto row = logits->begin(); row != logits->end(); row += static_cast<std::ptrdiff_t>(width))
    rows.emplace_back(row, row + static_cast<std::ptrdiff_t>(width));
  return rows;
}

double spread(const std::vector<float>& row) {
  const double size = static_cast<double>(row.size());
  double sum = 0;
  double squares = 0;
  for (const float x : row) sum += x;
  for (const float x : row) squares += (x - sum / size) * (x - sum / size);
  return std::sqrt(squares / size);
}

std::size_t different_best(const Rows& a, const Rows& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (arg_max(a[i]) != arg_max(b[i])) ++count;
  return count;
}

double median_kl(const Rows& a, const Rows& b) {
  std::vector<double> values;
  for (std::size_t i = 0; i < a.size(); ++i) values.push_back(kl_divergence(a[i], b[i]));
  std::nth_element(values.begin(), values.begin() + kPositions / 2, values.end());
  return values[kPositions / 2];
}

// The output layer is drawn so that the logits of a row deviate by 3; types of one and two bits
// keep that within a quarter or so.
void expect_alive(const Rows& rows, const std::vector<TokenId>& prompt) {
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(kPositions));
  std::set<std::size_t> best;
  int itself = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_GT(spread(rows[i]), 2.0);
    EXPECT_LT(spread(rows[i]), 4.5);
    best.insert(arg_max(rows[i]));
    const auto token = static_cast<std::size_t>(prompt[kPromptLength - kPositions + i]);
    if (arg_max(rows[i]) == token) ++itself;
  }
  // Measured: 21 to 59 different ones of 64 (few where biases meet a tied output layer), and a
  // token predicts itself 22 times at most (tied experts).
  EXPECT_GE(best.size(), 15U);
  EXPECT_LE(itself, kPositions / 2);
}

std::string name_of(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '-' || c == ' '; }, '_');
  return text;
}

TEST(Generator, EveryTinyKindIsTested) {
  const auto list = run_checked({SINEW_GENERATE, "--list"}, {}, std::chrono::seconds(20));
  ASSERT_TRUE(list) << list.error().message;
  std::istringstream lines(list->out);
  std::vector<std::string> listed;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("tiny-")) listed.push_back(line.substr(0, line.find(' ')));
  EXPECT_EQ(std::set(listed.begin(), listed.end()), std::set(kKinds.begin(), kKinds.end()));
}

// The tensor's bytes from `skip` on of each piece of `size` bytes.
std::vector<std::string> pieces_of(const std::string& file, const std::string& tensor,
                                   std::size_t size, std::size_t skip) {
  std::vector<std::string> pieces;
  const GgufPart part{"generated", std::as_bytes(std::span(file))};
  const auto directory = GgufModel::parse(std::span(&part, 1));
  const TensorInfo* info = directory ? directory->find(tensor) : nullptr;
  if (info == nullptr) return pieces;
  for (std::uint64_t at = 0; at < info->bytes; at += size)
    pieces.push_back(file.substr(info->offset + at + skip, size - skip));
  return pieces;
}

// Of a type that is slow to quantise, whose pool holds fewer blocks than there are tokens.
TEST(Generator, NoTwoTokensAreTheSame) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-llama", "iq3_xxs", kContext);
  ASSERT_TRUE(model) << model.error().message;
  const auto file = read_file(*model);
  ASSERT_TRUE(file) << file.error().message;
  constexpr std::size_t kBlock = 98;
  for (const char* name : {"token_embd.weight", "output.weight"}) {
    const auto rows = pieces_of(*file, name, kBlock, 0);
    EXPECT_EQ(rows.size(), 320U);
    EXPECT_EQ(std::set(rows.begin(), rows.end()).size(), rows.size()) << name;
  }
}

// Large matrices are put together from blocks quantised once. Equal rows would be tokens that tie,
// and blocks shared by two matrices, scaled, would make what one writes what the other looks for.
TEST(Generator, LargeMatricesRepeatNoRowAndShareNoBlock) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-qwen2", "q4_K", kContext);
  ASSERT_TRUE(model) << model.error().message;
  const auto file = read_file(*model);
  ASSERT_TRUE(file) << file.error().message;
  constexpr std::size_t kBlock = 144;
  constexpr std::size_t kScales = 4;  // the two numbers that a wider deviation multiplies
  const auto rows = pieces_of(*file, "blk.0.attn_q.weight", 4 * kBlock, 0);
  EXPECT_EQ(rows.size(), 1024U);
  EXPECT_EQ(std::set(rows.begin(), rows.end()).size(), rows.size());
  const auto queries = pieces_of(*file, "blk.0.attn_q.weight", kBlock, kScales);
  const auto output = pieces_of(*file, "blk.0.attn_output.weight", kBlock, kScales);
  const std::set known(queries.begin(), queries.end());
  EXPECT_FALSE(output.empty());
  EXPECT_TRUE(std::none_of(output.begin(), output.end(),
                           [&](const std::string& block) { return known.contains(block); }));
}

class GeneratedKind : public testing::TestWithParam<std::string> {};

TEST_P(GeneratedKind, AnswersByWhatWasSaidAndInWhichOrder) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, GetParam(), "f16", kContext);
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<TokenId> prompt = random_prompt(1);
  const Rows rows = last_rows(*model, prompt);
  expect_alive(rows, prompt);
  if (HasFailure()) return;

  // The last tokens stay, so that only attention can tell. Rounding changes three of the 64 at
  // most; these change 20 and more.
  const auto last = prompt.end() - kPositions;
  std::vector<TokenId> other = random_prompt(2);
  std::copy(last, prompt.end(), other.end() - kPositions);
  EXPECT_GE(different_best(rows, last_rows(*model, other)), 12U) << "other tokens before";
  std::vector<TokenId> shuffled = prompt;
  std::shuffle(shuffled.begin(), shuffled.end() - kPositions, std::mt19937(3));
  EXPECT_GE(different_best(rows, last_rows(*model, shuffled)), 12U) << "another order before";
}

INSTANTIATE_TEST_SUITE_P(Kinds, GeneratedKind, testing::ValuesIn(kKinds),
                         [](const auto& given) { return name_of(given.param); });

class GeneratedType : public testing::TestWithParam<std::string> {};

TEST_P(GeneratedType, IsLoadedAndAlive) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-llama", GetParam(), kContext);
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<TokenId> prompt = random_prompt(1);
  expect_alive(last_rows(*model, prompt), prompt);
}

INSTANTIATE_TEST_SUITE_P(Types, GeneratedType,
                         testing::Values("f32", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0",
                                         "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq1_s", "iq1_m",
                                         "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl",
                                         "iq4_xs", "mxfp4", "nvfp4", "tq1_0", "tq2_0", "q1_0",
                                         "q2_0", "mixed"),
                         [](const auto& given) { return name_of(given.param); });

// A part of a model that is changed in the file.
struct Part {
  std::string name;  // a key, or the end of the names of float32 tensors
  double value = 0;  // of the key, or of all elements
};
struct Parts {
  std::string kind;
  std::vector<Part> parts;
  friend void PrintTo(const Parts& given, std::ostream* out) { *out << given.kind; }
};

// Keeps the type of the key's value: uint32, float32 or bool.
bool set_key(std::string& file, const std::string& key, double value) {
  const auto length = static_cast<std::uint64_t>(key.size());
  const std::string stored(reinterpret_cast<const char*>(&length), sizeof length);
  const std::size_t found = file.find(stored + key);
  if (found == std::string::npos) return false;
  const std::size_t at = found + sizeof length + key.size();
  std::uint32_t type = 0;
  std::memcpy(&type, file.data() + at, sizeof type);
  const auto put = [&](auto number) {
    std::memcpy(file.data() + at + sizeof type, &number, sizeof number);
    return true;
  };
  if (type == meta_type_id<std::uint32_t>()) return put(static_cast<std::uint32_t>(value));
  if (type == meta_type_id<float>()) return put(static_cast<float>(value));
  if (type == meta_type_id<bool>()) return put(value != 0);
  return false;
}

bool fill_tensors(std::string& file, const std::string& ending, double value) {
  const GgufPart part{"generated", std::as_bytes(std::span(file))};
  const auto directory = GgufModel::parse(std::span(&part, 1));
  if (!directory) return false;
  bool any = false;
  const auto element = static_cast<float>(value);
  for (const TensorInfo& tensor : directory->tensors()) {
    if (!tensor.name.ends_with(ending)) continue;
    if (tensor.type != TensorType::kF32) return false;
    for (std::uint64_t at = 0; at < tensor.bytes; at += sizeof element)
      std::memcpy(file.data() + tensor.offset + at, &element, sizeof element);
    any = true;
  }
  return any;
}

class GeneratedParts : public testing::TestWithParam<Parts> {};

// llama.cpp's own settings (flash attention, cache, chunks, kernels of another processor) move
// these models by a median KL of 4.4e-4 at most.
TEST_P(GeneratedParts, MoveTheLogits) {
  constexpr double kNoise = 4.4e-4;
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, GetParam().kind, "f16", kContext);
  ASSERT_TRUE(model) << model.error().message;
  const auto file = read_file(*model);
  ASSERT_TRUE(file) << file.error().message;
  const std::vector<TokenId> prompt = random_prompt(1);
  const Rows rows = last_rows(*model, prompt);
  for (const auto& [name, value] : GetParam().parts) {
    SCOPED_TRACE(name);
    std::string changed = *file;
    const bool tensor = name.ends_with(".weight") || name.ends_with(".bias");
    ASSERT_TRUE(tensor ? fill_tensors(changed, name, value) : set_key(changed, name, value));
    const std::string path = folder.file("changed.gguf");
    ASSERT_TRUE(write_file(path, changed));
    const Rows moved = last_rows(path, prompt);
    ASSERT_EQ(moved.size(), rows.size());
    EXPECT_GT(median_kl(rows, moved), 10 * kNoise);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GeneratedParts,
    testing::Values(
        Parts{"tiny-llama2", {{"llama.rope.freq_base", 20000}}},
        Parts{"tiny-llama3", {{"rope_freqs.weight", 1}}},
        Parts{"tiny-mixtral", {{"llama.expert_used_count", 3}}},
        Parts{"tiny-qwen2", {{"attn_q.bias"}, {"attn_k.bias"}, {"attn_v.bias"}}},
        Parts{"tiny-qwen3", {{"attn_q_norm.weight", 1}, {"qwen3.rope.freq_base", 20000}}},
        Parts{"tiny-qwen3moe", {{"qwen3moe.expert_used_count", 4}}},
        Parts{"tiny-glm4moe",
              {{"glm4moe.rope.dimension_count", 64},
               {"attn_q.bias"},
               {"attn_k.bias"},
               {"attn_v.bias"},
               {"exp_probs_b.bias"},
               {"glm4moe.expert_weights_scale", 2},
               {"glm4moe.expert_weights_norm", 0},
               {"glm4moe.expert_gating_func", 1}}},
        Parts{"tiny-gptoss",
              {{"gpt-oss.attention.sliding_window", 256},
               {"gpt-oss.rope.scaling.factor", 16},
               {"attn_sinks.weight"},
               {"attn_q.bias"},
               {"attn_output.bias"},
               {"ffn_gate_inp.bias"},
               {"ffn_gate_exps.bias"},
               {"ffn_up_exps.bias"},
               {"ffn_down_exps.bias"}}},
        Parts{"tiny-minimax",
              {{"minimax-m2.rope.dimension_count", 128},
               {"minimax-m2.expert_gating_func", 1},
               {"exp_probs_b.bias"}}},
        Parts{"tiny-gemma3",
              {{"gemma3.attention.sliding_window", 256},
               {"gemma3.rope.freq_base", 10000},
               {"gemma3.rope.freq_base_swa", 1000000}}},
        Parts{"tiny-ds",
              {{"deepseek2.expert_group_used_count", 3},
               {"deepseek2.expert_weights_scale", 2},
               {"deepseek2.rope.scaling.yarn_log_multiplier", 0.0707},
               {"deepseek2.rope.scaling.factor", 8},
               {"exp_probs_b.bias"}}},
        Parts{"tiny-ds-v2", {{"deepseek2.expert_gating_func", 2}}},
        Parts{"tiny-ds-lite",
              {{"deepseek2.expert_gating_func", 2},
               {"deepseek2.rope.scaling.yarn_log_multiplier", 0.1}}},
        Parts{"tiny-moonlight", {{"exp_probs_b.bias"}}},
        Parts{"tiny-ds32", {{"deepseek32.attention.indexer.top_k", 1024}, {"indexer.k_norm.bias"}}},
        Parts{"tiny-glm-dsa", {{"glm-dsa.attention.indexer.top_k", 1024}}},
        Parts{"tiny-glm-dsa-shared", {{"glm-dsa.attention.indexer.top_k", 1024}}}),
    [](const auto& given) { return name_of(given.param.kind); });

struct Flag {
  std::string kind;
  std::string flag;
  bool changes;  // the logits
  friend void PrintTo(const Flag& flag, std::ostream* out) {
    *out << flag.kind << ' ' << flag.flag;
  }
};

class GeneratedFlag : public testing::TestWithParam<Flag> {};

// A layer for multi-token prediction takes no part in a plain pass: not a bit changes.
TEST_P(GeneratedFlag, ChangesTheLogitsOrNot) {
  const TemporaryFolder folder;
  const auto& [kind, flag, changes] = GetParam();
  const auto plain = generate_model(SINEW_GENERATE, folder, kind, "f16", kContext);
  ASSERT_TRUE(plain) << plain.error().message;
  const auto with = generate_model(SINEW_GENERATE, folder, kind, "f16", kContext, {flag});
  ASSERT_TRUE(with) << with.error().message;
  const std::vector<TokenId> prompt = random_prompt(1);
  const Rows rows = last_rows(*with, prompt);
  expect_alive(rows, prompt);
  EXPECT_EQ(rows != last_rows(*plain, prompt), changes);
}

INSTANTIATE_TEST_SUITE_P(
    Flags, GeneratedFlag,
    testing::Values(Flag{"tiny-ds", "--mtp", false}, Flag{"tiny-ds-v2", "--mtp", false},
                    Flag{"tiny-ds32", "--mtp", false}, Flag{"tiny-glm-dsa", "--mtp", false},
                    Flag{"tiny-glm4moe", "--mtp", false}, Flag{"tiny-glm4moe", "--qk-norm", true},
                    Flag{"tiny-llama", "--tied", true}, Flag{"tiny-qwen2", "--tied", true},
                    Flag{"tiny-qwen3", "--tied", true}, Flag{"tiny-qwen3moe", "--tied", true},
                    Flag{"tiny-glm4moe", "--tied", true}),
    [](const auto& given) { return name_of(given.param.kind + given.param.flag); });

TEST(Generator, RefusesAFlagThatTheKindHasNoUseFor) {
  const TemporaryFolder folder;
  for (const auto& [kind, flag] : {std::pair{"tiny-llama", "--mtp"},
                                   {"tiny-gptoss", "--tied"},
                                   {"tiny-ds", "--qk-norm"},
                                   {"tiny-ds-lite", "--mtp"}}) {
    const auto result = run_process({SINEW_GENERATE, kind, folder.file("x.gguf"), flag}, {},
                                    std::chrono::seconds(20));
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->exit_status, 2) << kind << ' ' << flag;
    EXPECT_NE(result->err.find(flag), std::string::npos) << result->err;
  }
}

}  // namespace
}  // namespace sinew::test
