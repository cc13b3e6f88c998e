#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unicode.h"
#include "gguf/metadata.h"

namespace sinew::test {

// A vocabulary small enough to see through: tokens 0 .. 255 are the bytes, then the results of
// `merges` in order, then `special` with their types (3: control, 4: user-defined).
struct TinyVocabulary {
  std::string pretokenizer = "gpt-2";
  std::vector<std::pair<std::string, std::string>> merges{
      {"a", "a"}, {"aa", "aa"}, {"b", "c"}, {"a", "b"}, {" ", "a"}, {"t", "h"}, {"th", "e"}};
  std::vector<std::pair<std::string, int>> special{
      {"<bos>", 3}, {"<|im_end|>", 3}, {"<u>", 4}, {"<u><u>", 4}};

  Metadata metadata() const {
    Metadata metadata("tiny.gguf");
    MetaArray tokens;
    MetaArray types;
    MetaArray lines;
    const auto add = [&](std::string text, int type) {
      tokens.strings.push_back(std::move(text));
      types.signed_integers.push_back(type);
    };
    for (int byte = 0; byte < 256; ++byte) {
      add(encode_bpe_text(std::string(1, static_cast<char>(byte))), 1);
    }
    for (const auto& [left, right] : merges) {
      add(encode_bpe_text(left + right), 1);
      lines.strings.push_back(encode_bpe_text(left) + ' ' + encode_bpe_text(right));
    }
    for (const auto& [text, type] : special) add(text, type);
    tokens.element_type = lines.element_type = kString;
    types.element_type = kInt32;
    tokens.size = tokens.strings.size();
    types.size = types.signed_integers.size();
    lines.size = lines.strings.size();
    metadata.insert("tokenizer.ggml.model", MetaScalar(std::string("gpt2")));
    metadata.insert("tokenizer.ggml.pre", MetaScalar(pretokenizer));
    metadata.insert("tokenizer.ggml.tokens", std::move(tokens));
    metadata.insert("tokenizer.ggml.token_type", std::move(types));
    metadata.insert("tokenizer.ggml.merges", std::move(lines));
    return metadata;
  }

  static constexpr std::uint32_t kString = 8;  // GGUF's ids of element types
  static constexpr std::uint32_t kInt32 = 5;
  static constexpr int kFirstMerge = 256;
  int first_special() const { return kFirstMerge + static_cast<int>(merges.size()); }
};

// The same for SentencePiece: tokens 0 to 2 are <unk>, <s> and </s>, then the 256 bytes, then
// `pieces` in the order of their scores, then `special`.
struct TinyPieces {
  std::vector<std::string> pieces{
      "\u2581the", "th", "\u2581t", "he", "ab",  "bc", "\u2581", "a", "b", "c", "t",
      "h",         "e",  "\u00e9",  "<s", "</s", "<",  "/",      "s", ">", "u", "</"};
  std::vector<std::pair<std::string, int>> special{{"<u>", 4}, {"<mark>", 3}};

  Metadata metadata() const {
    Metadata metadata("tiny.gguf");
    MetaArray tokens;
    MetaArray types;
    MetaArray scores;
    const auto add = [&](std::string text, int type, double score) {
      tokens.strings.push_back(std::move(text));
      types.signed_integers.push_back(type);
      scores.reals.push_back(score);
    };
    add("<unk>", 2, 0);
    add("<s>", 3, 0);
    add("</s>", 3, 0);
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 6, 0);
    for (const std::string& piece : pieces) {
      add(piece, 1, -static_cast<double>(tokens.strings.size()));
    }
    for (const auto& [text, type] : special) add(text, type, 0);
    tokens.element_type = TinyVocabulary::kString;
    types.element_type = TinyVocabulary::kInt32;
    scores.element_type = 6;
    tokens.size = types.size = scores.size = tokens.strings.size();
    metadata.insert("tokenizer.ggml.model", MetaScalar(std::string("llama")));
    metadata.insert("tokenizer.ggml.tokens", std::move(tokens));
    metadata.insert("tokenizer.ggml.token_type", std::move(types));
    metadata.insert("tokenizer.ggml.scores", std::move(scores));
    return metadata;
  }

  static constexpr int kFirstByte = 3;
  static constexpr int kFirstPiece = kFirstByte + 256;
};

// The metadata without one key, or with another value of it.
inline Metadata changed(const Metadata& metadata, const std::string& key,
                        std::optional<MetaValue> value) {
  Metadata result("tiny.gguf");
  for (const std::string& name : metadata.keys()) {
    if (name != key) result.insert(name, *metadata.find(name));
  }
  if (value) result.insert(key, std::move(*value));
  return result;
}

}  // namespace sinew::test
