#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace sinew {

// The merges of a byte-level BPE: which two neighbouring tokens become which one, and in which
// order.
class BpeMerges {
 public:
  struct Merge {
    std::uint32_t rank = 0;  // lower is done first
    TokenId result = 0;
  };

  BpeMerges() = default;
  explicit BpeMerges(std::size_t merge_count);

  // The first of two merges of the same pair counts. At most `merge_count` calls.
  void add(TokenId left, TokenId right, Merge merge);
  std::optional<Merge> find(TokenId left, TokenId right) const;

  static constexpr TokenId kNoToken = -1;
  // The token of each single byte; bytes without one are left out of the ids, as llama.cpp does.
  std::array<TokenId, 256> byte_tokens = no_tokens();

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::array<TokenId, 256> no_tokens();
  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;  // open addressing; the size is a power of two, at most half full
};

// Merges one word after the other. Keeps its buffers between words; one object a call, not shared.
//
// Short words: the best pair is searched again after each merge. Long ones: a heap of candidate
// merges over a linked list of symbols, O(n log n) for n symbols.
class BpeWord {
 public:
  explicit BpeWord(const BpeMerges& merges) : merges_(merges) {}

  // Appends the ids of `word`, byte by byte; it is at most kTextBytesMax bytes.
  void encode(std::string_view word, std::vector<TokenId>& ids);

  // The same for a word of other first symbols: they are added one by one, then merged.
  void add(TokenId symbol) { symbols_.push_back(symbol); }
  void merge(std::vector<TokenId>& ids);

 private:
  struct Node {
    TokenId id = 0;
    std::int32_t previous = -1;
    std::int32_t next = -1;
    bool alive = true;
  };
  // A merge that was possible when it was found; stale if one of the ids has changed since.
  struct Candidate {
    std::uint32_t rank = 0;
    std::int32_t left = 0;
    std::int32_t right = 0;
    TokenId left_id = 0;
    TokenId right_id = 0;
    TokenId result = 0;
  };
  static constexpr std::size_t kShortMax = 24;  // symbols; measured with bench/tokenizer.sh
  static bool later(const Candidate& a, const Candidate& b);
  void merge_short();
  void merge_long();
  BpeMerges::Merge pair_at(std::size_t left) const;
  std::optional<Candidate> candidate(std::int32_t left, std::int32_t right) const;
  void push(std::int32_t left, std::int32_t right);
  bool is_current(const Candidate& candidate) const;

  const BpeMerges& merges_;  // outlives this object
  std::vector<TokenId> symbols_;
  std::vector<BpeMerges::Merge> pairs_;  // of each symbol with the next; kNoToken where none
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace sinew
