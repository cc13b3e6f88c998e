#include "text/special_tokens.h"

#include <algorithm>

#include "base/assert.h"

namespace sinew {
namespace {

std::uint64_t edge(std::uint32_t node, char byte) {
  return (std::uint64_t{node} << 8) | static_cast<std::uint8_t>(byte);
}

// Cuts every text fragment at the occurrences of one token, from left to right.
std::vector<Fragment> cut(const std::vector<Fragment>& fragments, TokenId token,
                          std::string_view piece) {
  std::vector<Fragment> result;
  result.reserve(fragments.size() + 2);
  for (const Fragment& fragment : fragments) {
    if (fragment.text.empty()) {
      result.push_back(fragment);
      continue;
    }
    std::string_view rest = fragment.text;
    for (std::size_t at = rest.find(piece); at != rest.npos; at = rest.find(piece)) {
      if (at > 0) result.push_back({rest.substr(0, at)});
      result.push_back({{}, token});
      rest.remove_prefix(at + piece.size());
    }
    if (!rest.empty()) result.push_back({rest});
  }
  return result;
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : vocabulary_(&vocabulary) {
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    const Vocabulary::Kind kind = vocabulary.kind(token);
    if (kind == Vocabulary::Kind::kControl || kind == Vocabulary::Kind::kUserDefined) {
      by_length_.push_back(token);
    }
  }
  std::stable_sort(by_length_.begin(), by_length_.end(), [&](TokenId a, TokenId b) {
    return vocabulary.piece(a).size() > vocabulary.piece(b).size();
  });
  order_at_.push_back(0);
  for (std::size_t i = 0; i < by_length_.size(); ++i) insert(vocabulary.piece(by_length_[i]), i);
}

void SpecialTokens::insert(std::string_view text, std::size_t order) {
  SINEW_ASSERT(!text.empty());
  starts_[static_cast<std::uint8_t>(text.front())] = true;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [place, is_new] =
        children_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(order_at_.size()));
    if (is_new) order_at_.push_back(0);
    node = place->second;
  }
  order_at_[node] = static_cast<std::uint32_t>(order + 1);
}

std::vector<TokenId> SpecialTokens::occurring(std::string_view text, bool parse_control) const {
  std::vector<bool> seen(by_length_.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!starts_[static_cast<std::uint8_t>(text[i])]) continue;
    std::uint32_t node = 0;
    for (std::size_t j = i; j < text.size(); ++j) {
      const auto place = children_.find(edge(node, text[j]));
      if (place == children_.end()) break;
      node = place->second;
      if (order_at_[node] > 0) seen[order_at_[node] - 1] = true;
    }
  }
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const bool control = vocabulary_->kind(by_length_[i]) == Vocabulary::Kind::kControl;
    if (seen[i] && (parse_control || !control)) tokens.push_back(by_length_[i]);
  }
  return tokens;
}

std::vector<Fragment> SpecialTokens::partition(std::string_view text, bool parse_control) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({text});
  for (const TokenId token : occurring(text, parse_control)) {
    fragments = cut(fragments, token, vocabulary_->piece(token));
  }
  return fragments;
}

}  // namespace sinew
