#include "text/bpe.h"

#include <algorithm>
#include <bit>

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
  const TokenId left_id = symbols_[static_cast<std::size_t>(left)].id;
  const TokenId right_id = symbols_[static_cast<std::size_t>(right)].id;
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
  const Symbol& left = symbols_[static_cast<std::size_t>(c.left)];
  const Symbol& right = symbols_[static_cast<std::size_t>(c.right)];
  return left.alive && right.alive && left.next == c.right && left.id == c.left_id &&
         right.id == c.right_id;
}

void BpeWord::encode(std::string_view word, std::vector<TokenId>& ids) {
  symbols_.clear();
  heap_.clear();
  const auto count = static_cast<std::int32_t>(word.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<std::uint8_t>(word[static_cast<std::size_t>(i)]);
    symbols_.push_back({merges_.byte_tokens[byte], i - 1, i + 1 < count ? i + 1 : -1, true});
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
    Symbol& left = symbols_[static_cast<std::size_t>(best.left)];
    Symbol& right = symbols_[static_cast<std::size_t>(best.right)];
    left.id = best.result;
    left.next = right.next;
    right.alive = false;
    if (right.next >= 0) symbols_[static_cast<std::size_t>(right.next)].previous = best.left;
    push(left.previous, best.left);
    push(best.left, left.next);
  }
  for (const Symbol& symbol : symbols_) {
    if (symbol.alive && symbol.id != BpeMerges::kNoToken) ids.push_back(symbol.id);
  }
}

}  // namespace sinew
