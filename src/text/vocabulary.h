#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gguf/metadata.h"

namespace sinew {

// What tokenizer.ggml.* says about each token, with the corrections that llama.cpp makes to files
// that mark their special tokens wrongly; ids agree with it only if the same tokens are special.
class Vocabulary {
 public:
  // How the file spells tokens.
  enum class Spelling : std::uint8_t {
    kByteLevel,  // a character for every byte
    kPieces,     // as text with U+2581 for spaces, and <0x41> for bytes
    // The same, of a SentencePiece model with scores: BOS and EOS are 1 and 2 where the file names
    // none.
    kScoredPieces,
  };
  // kInvalidFile for arrays that do not fit together, duplicate tokens, and ids out of range.
  static Result<Vocabulary> from_metadata(const Metadata& metadata, Spelling spelling);

  enum class Kind : std::uint8_t {
    kNormal,
    kControl,      // a token only where special tokens are parsed, never part of an answer
    kUserDefined,  // a token wherever its text occurs
    kByte,         // one byte, where text has no other token
    kSilent,       // unused or of no known kind: no bytes
  };

  int size() const { return static_cast<int>(kinds_.size()); }
  bool contains(TokenId token) const { return token >= 0 && token < size(); }
  Kind kind(TokenId token) const { return kinds_[static_cast<std::size_t>(token)]; }
  // The bytes that the token stands for; of control and user-defined tokens their text.
  const std::string& piece(TokenId token) const { return pieces_[static_cast<std::size_t>(token)]; }
  bool is_end_of_generation(TokenId token) const { return ends_[static_cast<std::size_t>(token)]; }
  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }

  // The token whose text in the file spells exactly these bytes; a byte token only if no other
  // does.
  std::optional<TokenId> find_bytes(std::string_view bytes) const;
  // The control or user-defined token of this text.
  std::optional<TokenId> find_special(std::string_view text) const;
  // The token that the file writes like this; for merges.
  std::optional<TokenId> find_text(const std::string& text) const;
  // The texts are needed for merges only.
  void drop_texts() { by_text_.clear(); }

 private:
  explicit Vocabulary(Spelling spelling) : spelling_(spelling) {}
  Status read_tokens(const Metadata& metadata);
  Status read_special_ids(const Metadata& metadata);
  void mark_control(TokenId token);
  void exempt_inner_ends();
  void make_pieces(const std::vector<std::string>& texts);
  std::optional<std::string> bytes_of(const std::string& text, Kind kind) const;

  static constexpr std::size_t kTokensMax = std::size_t{1} << 24;

  Spelling spelling_;
  std::vector<std::string> pieces_;
  std::vector<Kind> kinds_;
  std::vector<bool> ends_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  std::unordered_map<std::string, TokenId> by_text_;
  std::unordered_map<std::string, TokenId> by_bytes_;
  std::unordered_map<std::string, TokenId> special_by_text_;
};

}  // namespace sinew
