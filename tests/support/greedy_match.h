#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "support/logits_program.h"

namespace sinew::test {

// How far two greedy answers to one prompt agree. After the first difference they are answers to
// different texts, so nothing behind it is compared.
struct GreedyMatch {
  std::size_t compared = 0;
  std::optional<std::size_t> differs_at;
  double gap = 0;  // of the reference at that place

  // Both tokens were as good as equal there: rounding may choose either.
  bool excused(double gap_tolerance) const { return differs_at.has_value() && gap < gap_tolerance; }
};

// Both of the same length. `end_token`: nothing behind the first of these in the reference is
// compared.
GreedyMatch match_greedy(std::span<const GreedyToken> reference, std::span<const GreedyToken> other,
                         std::optional<TokenId> end_token = std::nullopt);

}  // namespace sinew::test
