#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace sinew {

// Turns sampled tokens into the text that a client sees: whole UTF-8 sequences only (invalid bytes
// become U+FFFD), control tokens left out, and nothing of a stop string or after it.
class AnswerStream {
 public:
  AnswerStream(const Tokenizer& tokenizer, std::vector<std::string> stop_strings);

  struct Piece {
    std::string text;      // may be empty while a sequence or a possible stop string is incomplete
    bool stopped = false;  // a stop string is complete: the request is over
  };
  Piece add(TokenId token);
  // What was held back, when the answer ends for another reason.
  std::string finish();

 private:
  Piece take();

  const Tokenizer& tokenizer_;  // outlives this object: owned by the model that is served
  std::vector<std::string> stop_strings_;
  std::string bytes_;  // an incomplete UTF-8 sequence
  std::string held_;   // text that may be the start of a stop string
  bool stopped_ = false;
};

}  // namespace sinew
