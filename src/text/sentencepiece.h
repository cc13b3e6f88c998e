#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gguf/metadata.h"
#include "text/text_model.h"
#include "text/vocabulary.h"

namespace sinew {

// SentencePiece's BPE (tokenizer.ggml.model "llama": Llama 2, Mistral, Gemma): neighbouring
// characters become the piece of the highest score, again and again, over the whole text; spaces
// are U+2581, and the bytes of characters that are no piece become byte tokens, so that text of any
// bytes comes back exactly, with the space that is put before it, but for U+2581 itself, which
// comes back as a space.
//
// Also "gemma4", whose pieces merge by a list of pairs instead of scores, and which cuts at line
// feeds.
class SentencePiece final : public TextModel {
 public:
  // `vocabulary` outlives the model. kInvalidFile for scores that are missing, short or not finite,
  // and for a vocabulary without byte tokens.
  static Result<std::unique_ptr<SentencePiece>> with_scores(const Metadata& metadata,
                                                            const Vocabulary& vocabulary);
  static Result<std::unique_ptr<SentencePiece>> with_merges(const Metadata& metadata,
                                                            const Vocabulary& vocabulary);

  std::string_view prepare(std::string_view text, bool after_token,
                           std::string& storage) const override;
  Status split(std::string_view text, std::vector<std::uint32_t>& lengths) const override;
  void encode_word(std::string_view word, BpeWord& merging,
                   std::vector<TokenId>& ids) const override;
  const BpeMerges& merges() const override { return merges_; }

 private:
  explicit SentencePiece(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  Status read_characters(const Metadata& metadata, const std::vector<std::string>& texts);
  Status read_byte_tokens(const Metadata& metadata);
  void add_parts(std::string_view text);
  BpeMerges merges_of(const std::vector<std::string>& texts,
                      const std::vector<std::uint32_t>& ranks) const;
  TokenId symbol_of(std::string_view character) const;
  void append_bytes(std::string_view character, std::vector<TokenId>& ids) const;
  void replace_parts(std::vector<TokenId>& ids, std::ptrdiff_t from) const;

  const Vocabulary& vocabulary_;
  BpeMerges merges_;
  std::array<TokenId, 256> byte_tokens_{};
  // What merges: a character's token, or from the vocabulary's size on a character that is part of
  // tokens, but none itself. By the character's bytes as one number.
  std::unordered_map<std::uint32_t, TokenId> symbols_;
  std::array<TokenId, 128> ascii_{};                // the same, kNoToken where there is none
  std::vector<std::string> parts_;                  // the characters that are no tokens
  std::unordered_set<std::uint32_t> before_space_;  // in a piece
  bool adds_space_ = false;
  bool has_lines_ = false;  // gemma4: cuts at line feeds, and text is made UTF-8
};

}  // namespace sinew
