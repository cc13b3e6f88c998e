#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gguf/metadata.h"

namespace sinew {

// The vocabulary of a model: byte-level BPE or SentencePiece. Of the latter, a text comes back with
// the space that is put before it.
//
// Threads: const calls may run at the same time on several threads.
class Tokenizer {
 public:
  // From `tokenizer.ggml.*`. kUnsupported for a tokenizer or pre-tokenizer that is not implemented
  // (the message lists those that are); kInvalidFile for a vocabulary that contradicts itself.
  static Result<Tokenizer> from_metadata(const Metadata& metadata);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  int vocabulary_size() const;
  struct EncodeOptions {
    // Adds BOS, and EOS at the end, where the file says that the model wants them.
    bool add_bos = false;
    bool parse_special =
        false;  // control tokens in the text become tokens (templates), else plain text
  };
  // Any bytes, valid UTF-8 or not. kInvalidRequest if the text is longer than kTextBytesMax.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const;

  // The bytes of one token: empty for an id outside the vocabulary. Control tokens give their name.
  const std::string& piece(TokenId token) const;
  bool is_control(TokenId token) const;
  bool is_end_of_generation(TokenId token) const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  // The token of exactly this text, if there is one.
  std::optional<TokenId> find(std::string_view piece) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sinew
