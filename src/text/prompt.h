#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace sinew {

// Tokens of a rendered chat. Most templates write the BOS token themselves: a second one would
// spoil the answer, so it is added only where it is wanted and missing.
Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, std::string_view rendered);

// All tokens that end an answer.
std::vector<TokenId> end_of_generation_tokens(const Tokenizer& tokenizer);

}  // namespace sinew
