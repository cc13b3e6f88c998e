#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sinew::jinja {

struct Token {
  enum class Kind : std::uint8_t {
    kText,        // between tags, white space already taken off as the tags say
    kOutputOpen,  // {{
    kOutputClose,
    kBlockOpen,  // {%
    kBlockClose,
    kName,
    kInteger,
    kFloat,
    kString,  // text holds its value
    kSymbol,  // operators and brackets
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;
};

// Cuts a template into tokens, with trim_blocks and lstrip_blocks on and keep_trailing_newline off,
// as Hugging Face transformers sets Jinja up for chat templates. Comments and raw blocks are
// resolved here. `source` is valid UTF-8.
Result<std::vector<Token>> tokenize(std::string_view source);

// "the chat template, line N: ..."
tl::unexpected<Error> template_error(ErrorCode code, int line, std::string_view what);

}  // namespace sinew::jinja
