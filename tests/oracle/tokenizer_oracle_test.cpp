// Token ids of Sinew and of llama.cpp are the same, text by text: files with awkward text, a seeded
// generator of worse, and every code point between letters, digits and spaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/unicode.h"
#include "gguf/reader.h"
#include "support/oracle.h"
#include "text/code_point_set.h"
#include "text/tokenizer.h"

namespace sinew {
namespace {

namespace fs = std::filesystem;
using test::Oracle;

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The folder of llama.cpp's vocabularies, which come with its source tree.
fs::path vocabulary_folder() {
  static const fs::path folder = [] {
    FILE* pipe = ::popen(SINEW_SOURCE_DIR "/tools/deps source 2>/dev/null", "r");
    std::array<char, 4096> line{};
    const bool ok = pipe != nullptr && std::fgets(line.data(), line.size(), pipe) != nullptr;
    if (pipe != nullptr) ::pclose(pipe);
    std::string path = ok ? line.data() : "";
    while (!path.empty() && path.back() == '\n') path.pop_back();
    return fs::path(path) / "models";
  }();
  return folder;
}

// The file with another value of tokenizer.ggml.pre. Vocabulary files have no tensors, so nothing
// in them depends on the length of the metadata.
std::string with_pretokenizer(const std::string& bytes, const std::string& name) {
  const std::string key = "tokenizer.ggml.pre";
  const std::size_t at = bytes.find(key);
  if (at == std::string::npos) return {};
  const std::size_t length_at = at + key.size() + 4;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data() + length_at, sizeof length);
  const auto new_length = static_cast<std::uint64_t>(name.size());
  std::string result = bytes.substr(0, length_at);
  result.append(reinterpret_cast<const char*>(&new_length), sizeof new_length);
  result += name + bytes.substr(length_at + sizeof length + length);
  return result;
}

// llama.cpp throws out of its C interface, and so aborts, where a loose sequence is above U+10FFFF.
bool aborts_the_oracle(const std::string& text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0u;
  };
  for (std::size_t i = 0; i + 3 < text.size(); ++i) {
    const bool high =
        (byte(i) == 0xF4 && byte(i + 1) >= 0x90) || (byte(i) > 0xF4 && byte(i) < 0xF8);
    if (high && (byte(i + 1) & 0xC0) == 0x80) return true;
  }
  return false;
}

char32_t random_code_point(std::mt19937& random) {
  constexpr std::array<std::pair<char32_t, char32_t>, 16> kRanges{{{0x20, 0x7E},
                                                                   {0, 0x1F},
                                                                   {0x80, 0xFF},
                                                                   {0x100, 0x24F},
                                                                   {0x300, 0x36F},
                                                                   {0x370, 0x52F},
                                                                   {0x590, 0x6FF},
                                                                   {0x900, 0xE7F},
                                                                   {0x1100, 0x11FF},
                                                                   {0x2000, 0x206F},
                                                                   {0x2070, 0x2BFF},
                                                                   {0x3000, 0x30FF},
                                                                   {0x4E00, 0x9FFF},
                                                                   {0xD7A0, 0xFFFF},
                                                                   {0x1F000, 0x1FAFF},
                                                                   {0x10000, 0x10FFFF}}};
  const auto& [first, last] = kRanges[random() % kRanges.size()];
  return first + static_cast<char32_t>(random()) % (last - first + 1);
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> kParts{" ",
                                               "  ",
                                               "\t",
                                               "\n",
                                               "\r\n",
                                               "\n\n",
                                               "\r",
                                               "\u00a0",
                                               "\u3000",
                                               "\u2028",
                                               "\u0085",
                                               "\x0b",
                                               "'s",
                                               "'S",
                                               "'re",
                                               "'LL",
                                               "'",
                                               "1",
                                               "12",
                                               "1234",
                                               "\u0661\u0662",
                                               "\u00bd",
                                               "a",
                                               "Word",
                                               "word",
                                               "\u4e2d\u6587",
                                               "\u3042",
                                               "\u30a2",
                                               "\uac00",
                                               "\u0e01\u0e48",
                                               "e\u0301",
                                               "\u0301",
                                               "\U0001f469\u200d\U0001f467",
                                               "\ufe0f",
                                               ".",
                                               "!?",
                                               "->",
                                               "_",
                                               "<|im_end|>",
                                               "<|endoftext|>",
                                               "<\uff5cUser\uff5c>",
                                               "</think>",
                                               "<s>",
                                               "</s>",
                                               "<unk>",
                                               "\u2581",
                                               "<0x41>",
                                               "<eos>",

                                               std::string(1, '\0'),
                                               "\x7f",
                                               "\ue000",
                                               "\ufffd",
                                               "\u180e"};
  std::string text;
  int invalid = 0;
  for (int i = 0, count = 1 + static_cast<int>(random() % 24); i < count; ++i) {
    switch (random() % 8) {
      case 0:
        append_utf8(text, random_code_point(random));
        break;
      case 1:
        if (random() % 4 == 0 && ++invalid < 5) text += static_cast<char>(0x80 + random() % 128);
        break;
      default:
        text += kParts[random() % kParts.size()];
    }
  }
  return aborts_the_oracle(text) ? "" : text;
}

std::vector<std::string> awkward_texts(int count) {
  std::vector<std::string> texts{"",
                                 " ",
                                 "\n",
                                 "a",
                                 "  ",
                                 std::string(3000, ' '),
                                 std::string(3000, 'a'),
                                 std::string(500, '\n') + "x"};
  for (const auto& entry : fs::directory_iterator(SINEW_SOURCE_DIR "/tests/oracle/corpus")) {
    texts.push_back(read_file(entry.path()));
  }
  constexpr unsigned kSeed = 20261201;
  std::mt19937 random(kSeed);
  for (int i = 0; i < count; ++i) texts.push_back(random_text(random));
  return texts;
}

// Between neighbours that show its class: every code point of the planes that have characters.
std::vector<std::string> every_code_point() {
  std::vector<std::string> texts;
  std::string text;
  for (char32_t c = 0; c <= 0x323FF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    append_utf8(text, c);
    text += c % 3 == 0 ? "a" : c % 3 == 1 ? " " : "1.";
    append_utf8(text, c);
    if (c % 2 == 0) text += '\n';
    if (c % 512 == 511) texts.push_back(std::exchange(text, {}));
  }
  return texts;
}

// Ids of both, for BOS and special tokens on and off.
void expect_same_ids(const fs::path& model, const std::vector<std::string>& texts) {
  const std::string bytes = read_file(model);
  const GgufPart part{model.string(), as_bytes(bytes)};
  const auto file = GgufModel::parse({&part, 1});
  ASSERT_TRUE(file) << file.error().message;
  const auto tokenizer = Tokenizer::from_metadata(file->metadata());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (const bool special : {false, true}) {
    const auto expected = Oracle::tokenize(model.string(), texts, special, special);
    ASSERT_TRUE(expected) << expected.error().message;
    int failures = 0;
    for (std::size_t i = 0; i < texts.size() && failures < 5; ++i) {
      const auto ids = tokenizer->encode(texts[i], {.add_bos = special, .parse_special = special});
      ASSERT_TRUE(ids) << ids.error().message;
      if (*ids == (*expected)[i]) continue;
      ++failures;
      const auto [ours, theirs] =
          std::mismatch(ids->begin(), ids->end(), (*expected)[i].begin(), (*expected)[i].end());
      const auto index = ours - ids->begin();
      std::string before;
      for (auto id = ids->begin() + std::max<std::ptrdiff_t>(0, index - 3);
           id != ids->end() && id < ours + 4; ++id) {
        before += "[" + tokenizer->piece(*id) + "]";
      }
      std::string theirs_text;
      for (auto id = theirs; id != (*expected)[i].end() && id < theirs + 4; ++id) {
        theirs_text += "[" + tokenizer->piece(*id) + "]";
      }
      ADD_FAILURE() << model << " text " << i << " special " << special << " at id " << index
                    << "\nours around it: " << testing::PrintToString(before)
                    << "\ntheirs from it: " << testing::PrintToString(theirs_text);
    }
  }
}

// What is taken out of the texts where llama.cpp only comes near to the expression that a
// vocabulary was trained with (text/pretokenizer_table.cpp names the differences).
enum class Without : std::uint8_t { kNothing, kInvalid, kSpaces, kCaseAndMarks, kAllCaseAndMarks };

const CodePointSet& left_out(Without without) {
  static const CodePointSet none;
  // White space in the ranges of DeepSeek's first expressions.
  static const CodePointSet spaces =
      code_points_with("s").both(CodePointSet({{0x800, 0x9FA5}, {0xAC00, 0xD7FF}}));
  static const CodePointSet marks_and_case = CodePointSet({{0x80, 0x10FFFF}})
                                                 .both(code_points_with("M")
                                                           .with(code_points_with("Lu"))
                                                           .with(code_points_with("Ll"))
                                                           .with(code_points_with("Lt")));
  // Han that llama.cpp does not count as such, or takes for unassigned letters of Han.
  static const CodePointSet for_kimi = code_points_with("Han")
                                           .both(CodePointSet({{0x3400, 0x4DBF},
                                                               {0x4E00, 0x9FFF},
                                                               {0xF900, 0xFAFF},
                                                               {0x20000, 0x2EBEF},
                                                               {0x2F800, 0x2FA1F}})
                                                     .complement())
                                           .with(code_points_with("M"))
                                           .with(code_points_with("Lu"))
                                           .with(code_points_with("Lt"));
  switch (without) {
    case Without::kNothing:
    case Without::kInvalid:
      return none;
    case Without::kSpaces:
      return spaces;
    case Without::kCaseAndMarks:
      return marks_and_case;
    case Without::kAllCaseAndMarks:
      return for_kimi;
  }
  return none;
}

std::vector<std::string> reduced(std::vector<std::string> texts, Without without) {
  const CodePointSet& set = left_out(without);
  for (std::string& text : texts) {
    if (without == Without::kInvalid && !is_valid_utf8(text)) text.clear();
    std::string kept;
    std::string_view rest = text;
    while (!rest.empty()) {
      std::size_t length = 0;
      const auto code_point = loose_code_point(rest, length);
      if (!code_point) length = 1;
      if (!code_point || !set.contains(*code_point)) kept += rest.substr(0, length);
      rest.remove_prefix(length);
    }
    text = aborts_the_oracle(kept) ? "" : kept;
  }
  return texts;
}

// A name that GoogleTest takes.
std::string named(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

struct Pretokenized {
  const char* name;
  Without without = Without::kNothing;
};

class Pretokenizers : public testing::TestWithParam<Pretokenized> {};

TEST_P(Pretokenizers, GiveTheSameIdsWithTheVocabularyOfGpt2) {
  const std::string bytes = read_file(vocabulary_folder() / "ggml-vocab-gpt-2.gguf");
  if (bytes.empty()) GTEST_SKIP() << "no vocabularies: tools/deps source gave no folder";
  const auto [name, without] = GetParam();
  const fs::path model = fs::path(testing::TempDir()) / (std::string("pre-") + name + ".gguf");
  std::ofstream(model, std::ios::binary) << with_pretokenizer(bytes, name);
  expect_same_ids(model, reduced(awkward_texts(1500), without));
  expect_same_ids(model, reduced(every_code_point(), without));
  fs::remove(model);
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizer, Pretokenizers,
    testing::Values(Pretokenized{"deepseek-v3"}, Pretokenized{"llama-bpe"}, Pretokenized{"qwen2"},
                    Pretokenized{"qwen35"}, Pretokenized{"smollm"}, Pretokenized{"gpt-2"},
                    Pretokenized{"glm4"}, Pretokenized{"deepseek-llm", Without::kSpaces},
                    Pretokenized{"deepseek-coder", Without::kSpaces},
                    Pretokenized{"gpt-4o", Without::kCaseAndMarks},
                    Pretokenized{"minimax-m2", Without::kCaseAndMarks},
                    Pretokenized{"tekken", Without::kCaseAndMarks},
                    Pretokenized{"kimi-k2", Without::kAllCaseAndMarks}, Pretokenized{"bailingmoe"},
                    Pretokenized{"seed-coder"}, Pretokenized{"minicpm5"}),
    [](const auto& test) { return named(test.param.name); });

struct VocabularyFile {
  const char* name;
  Without without = Without::kNothing;
};

class Vocabularies : public testing::TestWithParam<VocabularyFile> {};

TEST_P(Vocabularies, GiveTheSameIds) {
  const fs::path model = vocabulary_folder() / GetParam().name;
  if (!fs::exists(model)) GTEST_SKIP() << "no vocabularies: tools/deps source gave no folder";
  expect_same_ids(model, reduced(awkward_texts(1500), GetParam().without));
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizer, Vocabularies,
    testing::Values(
        VocabularyFile{"ggml-vocab-llama-bpe.gguf"}, VocabularyFile{"ggml-vocab-qwen2.gguf"},
        VocabularyFile{"ggml-vocab-qwen35.gguf"}, VocabularyFile{"ggml-vocab-gpt-2.gguf"},
        VocabularyFile{"ggml-vocab-starcoder.gguf"}, VocabularyFile{"ggml-vocab-refact.gguf"},
        VocabularyFile{"ggml-vocab-command-r.gguf"}, VocabularyFile{"ggml-vocab-mpt.gguf"},
        VocabularyFile{"ggml-vocab-deepseek-llm.gguf", Without::kSpaces},
        VocabularyFile{"ggml-vocab-deepseek-coder.gguf", Without::kSpaces},
        VocabularyFile{"ggml-vocab-llama-spm.gguf", Without::kInvalid},
        VocabularyFile{"ggml-vocab-baichuan.gguf", Without::kInvalid},
        VocabularyFile{"ggml-vocab-gemma-4.gguf"}),
    [](const auto& test) { return named(test.param.name); });

TEST(TinyModel, GivesTheSameIds) {
  const fs::path model = SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf";
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  expect_same_ids(model, awkward_texts(3000));
}

}  // namespace
}  // namespace sinew
