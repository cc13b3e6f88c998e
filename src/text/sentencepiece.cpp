#include "text/sentencepiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/unicode.h"
#include "text/byte_bpe.h"

namespace sinew {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, how pieces spell a space

// Finding the parts of a piece takes time in proportion to the square of its length. The longest of
// real vocabularies has some 100 bytes.
constexpr std::size_t kPieceBytesMax = 1024;

// The character at the front, or one byte that belongs to none. llama.cpp goes by the first byte
// alone, and so takes text after a stray byte for a part of it, which costs the space in
// "\xFE word"; here every byte comes back.
std::string_view first_character(std::string_view text) {
  const auto lead = static_cast<std::uint8_t>(text.front());
  if (lead < 0x80) return text.substr(0, 1);
  const Utf8Step step = utf8_step(text);
  return text.substr(0, step.kind == Utf8Step::Kind::kValid ? step.length : 1);
}

// A character's bytes in one number.
std::uint32_t key_of(std::string_view character) {
  std::uint32_t key = 0;
  for (const char c : character) key = (key << 8) | static_cast<std::uint8_t>(c);
  return key;
}

bool is_space(std::string_view character) {
  return character == " " || character == kSpace;
}

bool can_be_merged(const Vocabulary& vocabulary, TokenId token, std::string_view text) {
  const Vocabulary::Kind kind = vocabulary.kind(token);
  const bool of_text = kind == Vocabulary::Kind::kNormal || kind == Vocabulary::Kind::kUserDefined;
  return of_text && text.find(' ') == text.npos;
}

// Ranks of scores: 0 for the highest, equal ones for equal scores.
std::vector<std::uint32_t> ranks_of(const std::vector<double>& scores) {
  std::vector<double> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<std::uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const double score : scores) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>());
    ranks.push_back(static_cast<std::uint32_t>(place - sorted.begin()));
  }
  return ranks;
}

Result<std::vector<double>> read_scores(const Metadata& metadata, int vocabulary_size) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  SINEW_ASSIGN(std::vector<double> scores, metadata.reals(kKey));
  if (scores.size() != static_cast<std::size_t>(vocabulary_size)) {
    return fail(ErrorCode::kInvalidFile, "{}: {} has {} scores for {} tokens; convert it again",
                metadata.file(), kKey, scores.size(), vocabulary_size);
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::isfinite(scores[i])) continue;
    return fail(ErrorCode::kInvalidFile, "{}: {}: the score of token {} is not a number",
                metadata.file(), kKey, i);
  }
  return scores;
}

}  // namespace

Result<std::unique_ptr<SentencePiece>> SentencePiece::with_scores(const Metadata& metadata,
                                                                  const Vocabulary& vocabulary) {
  SINEW_ASSIGN(const std::vector<std::string> texts, metadata.strings("tokenizer.ggml.tokens"));
  SINEW_ASSIGN(const std::vector<double> scores, read_scores(metadata, vocabulary.size()));
  std::unique_ptr<SentencePiece> model(new SentencePiece(vocabulary));
  SINEW_TRY(model->read_characters(metadata, texts));
  model->merges_ = model->merges_of(texts, ranks_of(scores));
  SINEW_ASSIGN(model->adds_space_, metadata.boolean_or("tokenizer.ggml.add_space_prefix", true));
  SINEW_ASSIGN(const bool removes_spaces,
               metadata.boolean_or("tokenizer.ggml.remove_extra_whitespaces", false));
  if (removes_spaces) {
    spdlog::warn(
        "{}: tokenizer.ggml.remove_extra_whitespaces is not applied: text keeps its spaces",
        metadata.file());
  }
  return model;
}

Result<std::unique_ptr<SentencePiece>> SentencePiece::with_merges(const Metadata& metadata,
                                                                  const Vocabulary& vocabulary) {
  SINEW_ASSIGN(const std::vector<std::string> texts, metadata.strings("tokenizer.ggml.tokens"));
  std::unique_ptr<SentencePiece> model(new SentencePiece(vocabulary));
  SINEW_TRY(model->read_characters(metadata, texts));
  SINEW_ASSIGN(model->merges_, read_merges(metadata, vocabulary));
  model->has_lines_ = true;
  return model;
}

Status SentencePiece::read_characters(const Metadata& metadata,
                                      const std::vector<std::string>& texts) {
  SINEW_TRY(read_byte_tokens(metadata));
  for (TokenId token = 0; token < vocabulary_.size(); ++token) {
    const std::string& text = texts[static_cast<std::size_t>(token)];
    if (!can_be_merged(vocabulary_, token, text)) continue;
    if (text.size() > kPieceBytesMax) {
      return fail(ErrorCode::kInvalidFile, "{}: token {} has {} bytes; at most {} are allowed",
                  metadata.file(), token, text.size(), kPieceBytesMax);
    }
    if (first_character(text).size() == text.size()) symbols_[key_of(text)] = token;
  }
  for (TokenId token = 0; token < vocabulary_.size(); ++token) {
    const std::string& text = texts[static_cast<std::size_t>(token)];
    if (can_be_merged(vocabulary_, token, text)) add_parts(text);
  }
  for (std::size_t c = 0; c < ascii_.size(); ++c) {
    const auto place = symbols_.find(static_cast<std::uint32_t>(c));
    ascii_[c] = place == symbols_.end() ? BpeMerges::kNoToken : place->second;
  }
  const auto space = symbols_.find(key_of(kSpace));
  ascii_[' '] = space == symbols_.end() ? BpeMerges::kNoToken : space->second;
  return {};
}

Status SentencePiece::read_byte_tokens(const Metadata& metadata) {
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const std::string name = fmt::format("<0x{:02X}>", byte);
    auto token = vocabulary_.find_text(name);
    if (!token) token = vocabulary_.find_text(std::string(1, static_cast<char>(byte)));
    if (!token) {
      return fail(
          ErrorCode::kInvalidFile,
          "{}: the vocabulary has no byte token {}, so text could be lost; convert it again",
          metadata.file(), name);
    }
    byte_tokens_[byte] = *token;
  }
  return {};
}

// The characters of one piece become symbols, and those before a space are noted.
void SentencePiece::add_parts(std::string_view text) {
  std::string_view before;
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    const auto next = static_cast<TokenId>(vocabulary_.size() + static_cast<int>(parts_.size()));
    if (symbols_.try_emplace(key_of(character), next).second) parts_.emplace_back(character);
    if (character == kSpace && !before.empty()) before_space_.insert(key_of(before));
    before = character;
    text.remove_prefix(character.size());
  }
}

// Every way to put a piece together from two: pieces, or single characters.
BpeMerges SentencePiece::merges_of(const std::vector<std::string>& texts,
                                   const std::vector<std::uint32_t>& ranks) const {
  std::unordered_map<std::string_view, TokenId> symbols;
  for (TokenId token = 0; token < vocabulary_.size(); ++token) {
    const std::string& text = texts[static_cast<std::size_t>(token)];
    if (can_be_merged(vocabulary_, token, text)) symbols.emplace(text, token);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    symbols.emplace(parts_[i], static_cast<TokenId>(vocabulary_.size() + static_cast<int>(i)));
  }
  struct Pair {
    TokenId left = 0;
    TokenId right = 0;
    TokenId result = 0;
  };
  std::vector<Pair> pairs;
  for (TokenId token = 0; token < vocabulary_.size(); ++token) {
    const std::string_view text = texts[static_cast<std::size_t>(token)];
    if (text.empty() || !can_be_merged(vocabulary_, token, text)) continue;
    for (std::size_t at = first_character(text).size(); at < text.size();
         at += first_character(text.substr(at)).size()) {
      const auto left = symbols.find(text.substr(0, at));
      if (left == symbols.end()) continue;
      const auto right = symbols.find(text.substr(at));
      if (right != symbols.end()) pairs.push_back({left->second, right->second, token});
    }
  }
  BpeMerges merges(pairs.size());
  for (const Pair& pair : pairs) {
    merges.add(pair.left, pair.right, {ranks[static_cast<std::size_t>(pair.result)], pair.result});
  }
  return merges;
}

std::string_view SentencePiece::prepare(std::string_view text, bool after_token,
                                        std::string& storage) const {
  if (has_lines_) {
    if (is_valid_utf8(text)) return text;
    storage = decode_loosely(text);
    return storage;
  }
  if (!adds_space_ || !after_token) return text;
  storage = " ";
  storage += text;
  return storage;
}

// No piece reaches across a space that has another character before it than those noted, so the
// text can be cut there without another result.
Status SentencePiece::split(std::string_view text, std::vector<std::uint32_t>& lengths) const {
  std::size_t begin = 0;
  std::size_t at = 0;
  std::string_view before;
  while (at < text.size()) {
    const std::string_view character = first_character(text.substr(at));
    const bool at_space = is_space(character) && !before_space_.contains(key_of(before));
    const bool at_line = has_lines_ && (character == "\n") != (before == "\n");
    if (at > begin && (at_space || at_line)) {
      lengths.push_back(static_cast<std::uint32_t>(at - begin));
      begin = at;
    }
    before = is_space(character) ? kSpace : character;
    at += character.size();
  }
  if (begin < at) lengths.push_back(static_cast<std::uint32_t>(at - begin));
  return {};
}

TokenId SentencePiece::symbol_of(std::string_view character) const {
  if (character.size() == 1) {
    const auto byte = static_cast<std::uint8_t>(character.front());
    if (byte < ascii_.size()) return ascii_[byte];
  }
  const auto place = symbols_.find(key_of(character));
  return place == symbols_.end() ? BpeMerges::kNoToken : place->second;
}

void SentencePiece::encode_word(std::string_view word, BpeWord& merging,
                                std::vector<TokenId>& ids) const {
  if (has_lines_ && word.front() == '\n') {
    if (const auto token = vocabulary_.find_bytes(word)) {
      ids.push_back(*token);
      return;
    }
  }
  const auto before = static_cast<std::ptrdiff_t>(ids.size());
  while (!word.empty()) {
    const std::string_view character = first_character(word);
    const TokenId symbol = symbol_of(character);
    if (symbol == BpeMerges::kNoToken) {
      merging.merge(ids);
      append_bytes(character, ids);
    } else {
      merging.add(symbol);
    }
    word.remove_prefix(character.size());
  }
  merging.merge(ids);
  if (!parts_.empty()) replace_parts(ids, before);
}

void SentencePiece::append_bytes(std::string_view character, std::vector<TokenId>& ids) const {
  for (const char byte : character) ids.push_back(byte_tokens_[static_cast<std::uint8_t>(byte)]);
}

// Characters that were symbols, but have become part of no token.
void SentencePiece::replace_parts(std::vector<TokenId>& ids, std::ptrdiff_t from) const {
  const auto is_part = [this](TokenId id) { return id >= vocabulary_.size(); };
  if (std::none_of(ids.begin() + from, ids.end(), is_part)) return;
  const std::vector<TokenId> merged(ids.begin() + from, ids.end());
  ids.resize(static_cast<std::size_t>(from));
  for (const TokenId id : merged) {
    if (is_part(id)) {
      append_bytes(parts_[static_cast<std::size_t>(id - vocabulary_.size())], ids);
    } else {
      ids.push_back(id);
    }
  }
}

}  // namespace sinew
