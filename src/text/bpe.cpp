#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/assert.h"

namespace sinew {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

}  // namespace

std::array<TokenId, 256> BpeMerges::no_tokens() {
  std::array<TokenId, 256> tokens{};
  tokens.fill(kNoToken);
  return tokens;
}

BpeMerges::BpeMerges(std::size_t merge_count) : slots_(std::bit_ceil(2 * merge_count + 2)) {}

std::size_t BpeMerges::slot_of(std::uint64_t key) const {
  // Fibonacci hashing: the high bits of the product depend on all bits of the key.
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = (key * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(slots_.size()));
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

void BpeMerges::add(TokenId left, TokenId right, Merge merge) {
  SINEW_ASSERT(left >= 0 && right >= 0 && merge.result >= 0);
  Slot& slot = slots_[slot_of(pair_key(left, right))];
  if (slot.key == kEmpty) slot = {pair_key(left, right), merge};
}

std::optional<BpeMerges::Merge> BpeMerges::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[slot_of(pair_key(left, right))];
  if (slot.key == kEmpty) return std::nullopt;
  return slot.merge;
}

bool BpeWord::later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

std::optional<BpeWord::Candidate> BpeWord::candidate(std::int32_t left, std::int32_t right) const {
  if (left < 0 || right < 0) return std::nullopt;
  const TokenId left_id = nodes_[static_cast<std::size_t>(left)].id;
  const TokenId right_id = nodes_[static_cast<std::size_t>(right)].id;
  if (left_id < 0 || right_id < 0) return std::nullopt;
  const auto merge = merges_.find(left_id, right_id);
  if (!merge) return std::nullopt;
  return Candidate{merge->rank, left, right, left_id, right_id, merge->result};
}

void BpeWord::push(std::int32_t left, std::int32_t right) {
  if (const auto found = candidate(left, right)) {
    heap_.push_back(*found);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
}

bool BpeWord::is_current(const Candidate& c) const {
  const Node& left = nodes_[static_cast<std::size_t>(c.left)];
  const Node& right = nodes_[static_cast<std::size_t>(c.right)];
  return left.alive && right.alive && left.next == c.right && left.id == c.left_id &&
         right.id == c.right_id;
}

void BpeWord::encode(std::string_view word, std::vector<TokenId>& ids) {
  for (const char byte : word) add(merges_.byte_tokens[static_cast<std::uint8_t>(byte)]);
  merge(ids);
}

void BpeWord::merge(std::vector<TokenId>& ids) {
  if (symbols_.size() > kShortMax) {
    merge_long();
  } else if (symbols_.size() > 1) {
    merge_short();
  }
  for (const TokenId id : symbols_) {
    if (id != BpeMerges::kNoToken) ids.push_back(id);
  }
  symbols_.clear();
}

BpeMerges::Merge BpeWord::pair_at(std::size_t left) const {
  constexpr BpeMerges::Merge kNone{std::numeric_limits<std::uint32_t>::max(), BpeMerges::kNoToken};
  const TokenId a = symbols_[left];
  const TokenId b = symbols_[left + 1];
  return a < 0 || b < 0 ? kNone : merges_.find(a, b).value_or(kNone);
}

void BpeWord::merge_short() {
  pairs_.clear();
  for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) pairs_.push_back(pair_at(i));
  while (!pairs_.empty()) {
    const auto best = std::min_element(
        pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->result == BpeMerges::kNoToken) return;
    const auto at = static_cast<std::size_t>(best - pairs_.begin());
    symbols_[at] = best->result;
    symbols_.erase(symbols_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    pairs_.erase(best);
    if (at < pairs_.size()) pairs_[at] = pair_at(at);
    if (at > 0) pairs_[at - 1] = pair_at(at - 1);
  }
}

void BpeWord::merge_long() {
  nodes_.clear();
  heap_.clear();
  const auto count = static_cast<std::int32_t>(symbols_.size());
  for (std::int32_t i = 0; i < count; ++i) {
    nodes_.push_back(
        {symbols_[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, true});
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    if (const auto found = candidate(i, i + 1)) heap_.push_back(*found);
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    if (!is_current(best)) continue;
    Node& left = nodes_[static_cast<std::size_t>(best.left)];
    Node& right = nodes_[static_cast<std::size_t>(best.right)];
    left.id = best.result;
    left.next = right.next;
    right.alive = false;
    if (right.next >= 0) nodes_[static_cast<std::size_t>(right.next)].previous = best.left;
    push(left.previous, best.left);
    push(best.left, left.next);
  }
  symbols_.clear();
  for (const Node& node : nodes_) {
    if (node.alive) symbols_.push_back(node.id);
  }
}

}  // namespace sinew
