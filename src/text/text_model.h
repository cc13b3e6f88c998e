#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/bpe.h"

namespace sinew {

// How the text between special tokens becomes ids, in three steps: it is made what the vocabulary
// was trained on, cut into words that no token reaches across, and each word is merged. Equal words
// have equal ids wherever they stand, so a caller may remember them.
//
// Threads: const calls may run at the same time.
class TextModel {
 public:
  TextModel() = default;
  virtual ~TextModel() = default;
  TextModel(const TextModel&) = delete;
  TextModel& operator=(const TextModel&) = delete;
  TextModel(TextModel&&) = delete;
  TextModel& operator=(TextModel&&) = delete;

  // The text to cut: `text` itself or what is put into `storage`. `after_token`: the text stands at
  // the beginning or after a special token.
  virtual std::string_view prepare(std::string_view text, bool after_token,
                                   std::string& storage) const = 0;
  // Appends the length in bytes of every word of a prepared text of at most kTextBytesMax + 1
  // bytes.
  virtual Status split(std::string_view text, std::vector<std::uint32_t>& lengths) const = 0;
  // Appends the ids of one word. `merging` refers to merges().
  virtual void encode_word(std::string_view word, BpeWord& merging,
                           std::vector<TokenId>& ids) const = 0;
  virtual const BpeMerges& merges() const = 0;
};

}  // namespace sinew
