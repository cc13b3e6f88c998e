#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "text/vocabulary.h"

namespace sinew {

// A stretch of text between special tokens, or one of them.
struct Fragment {
  std::string_view text;  // empty for a token
  TokenId token = -1;
};

// Finds the tokens that are taken out of a text before anything else looks at it: user-defined ones
// always, control ones on request. The longest token of the vocabulary is searched first, in the
// whole text, then the next: a longer one wins even where a shorter one begins earlier.
//
// Files have no attributes for white space around special tokens; llama.cpp knows them for some
// models by name, none of which this tokenizer supports.
class SpecialTokens {
 public:
  SpecialTokens() = default;
  // `vocabulary` must outlive this object.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // Time: one pass for the text, and one for each special token that occurs in it.
  std::vector<Fragment> partition(std::string_view text, bool parse_control) const;

 private:
  void insert(std::string_view text, std::size_t order);
  std::vector<TokenId> occurring(std::string_view text, bool parse_control) const;

  const Vocabulary* vocabulary_ = nullptr;
  std::vector<TokenId> by_length_;  // longest first, then by id
  // A trie over the tokens' texts; node 0 is the root.
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::vector<std::uint32_t> order_at_;  // node -> index in by_length_ + 1, 0 for none
  std::array<bool, 256> starts_{};
};

}  // namespace sinew
