#include "text/prompt.h"

namespace sinew {

Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, std::string_view rendered) {
  const auto bos = tokenizer.bos();
  const bool written = bos && rendered.starts_with(tokenizer.piece(*bos));
  return tokenizer.encode(rendered, {.add_bos = !written, .parse_special = true});
}

std::vector<TokenId> end_of_generation_tokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < tokenizer.vocabulary_size(); ++token)
    if (tokenizer.is_end_of_generation(token)) tokens.push_back(token);
  return tokens;
}

}  // namespace sinew
