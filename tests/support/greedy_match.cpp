#include "support/greedy_match.h"

#include "base/assert.h"

namespace sinew::test {

GreedyMatch match_greedy(std::span<const GreedyToken> reference, std::span<const GreedyToken> other,
                         std::optional<TokenId> end_token) {
  SINEW_ASSERT(reference.size() == other.size());
  GreedyMatch match;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    match.compared = i + 1;
    if (reference[i].id != other[i].id) {
      match.differs_at = i;
      match.gap = reference[i].gap;
      return match;
    }
    if (reference[i].id == end_token) return match;
  }
  return match;
}

}  // namespace sinew::test
