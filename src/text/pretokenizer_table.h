#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sinew {

// One pre-tokenizer: what Pretokenizer::create looks up.
struct PretokenizerRow {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const std::string_view> stages;
  bool whole_words_first = false;
  bool adds_bos = false;
};

// Null for a name that is not in the table.
const PretokenizerRow* find_pretokenizer(std::string_view name);

// All names, with commas between them: for messages.
std::string pretokenizer_names();

}  // namespace sinew
