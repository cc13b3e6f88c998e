#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sinew {

// Cuts text into the words inside which merges happen, by the regular expressions that a vocabulary
// was trained with.
//
// The expressions run one after the other: each cuts every piece that the one before left into its
// matches and what lies between them, and sees no character outside of the piece.
//
// Threads: const calls may run at the same time.
class Pretokenizer {
 public:
  // `name` is tokenizer.ggml.pre. kUnsupported, with the names that exist, for any other.
  static Result<Pretokenizer> create(std::string_view name);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Whether a word that is a token as a whole is taken as it is, without looking at merges.
  bool whole_words_first() const;
  // Whether BOS is wanted where the file does not say.
  bool adds_bos() const;

  // Appends the length in bytes of every word of `text`, which must be UTF-8 (utf8_step) of at most
  // kTextBytesMax bytes. kInternal if a match passes its limits.
  Status split(std::string_view text, std::vector<std::uint32_t>& lengths) const;

 private:
  struct State;
  explicit Pretokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sinew
