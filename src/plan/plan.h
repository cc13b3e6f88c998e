#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/slice.h"
#include "model/tensor_decl.h"

namespace sinew {

// Who holds what: for every rank and dimension a range of indices. A value: print it, compare it,
// test it without a cluster. All ranks compute the same plan from the same file and weights.
struct Plan {
  int ranks = 1;
  std::vector<std::array<IndexRange, kDimensionCount>> ranges;  // by rank

  IndexRange range(Rank rank, Dimension dimension) const {
    return ranges[static_cast<std::size_t>(rank)][static_cast<std::size_t>(dimension)];
  }
};

// Hands out `units` whole units to ranks in proportion to `weights` by largest remainder; among
// equal remainders the rank with the larger weight, then the lower rank, comes first. The result
// sums to `units`.
std::vector<std::int64_t> apportion(std::int64_t units, const std::vector<double>& weights);

// `weights` has one entry a rank (positive, finite). kUsage if their number is not 1 ..
// kRankCountMax or a rank would be left with nothing at all.
Result<Plan> make_plan(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const std::vector<double>& weights);

// One line a rank for people: "rank 0: heads 0..2 of 8, ...".
std::string explain_rank(const ModelSpec& spec, const Plan& plan, Rank rank);

// Bytes that a rank needs: its slices, and its part of the KV cache (f16) for `cells` tokens.
struct RankMemory {
  std::uint64_t weight_bytes = 0;
  std::uint64_t cache_bytes = 0;
};
RankMemory rank_memory(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const Plan& plan, Rank rank, std::int64_t cells);

}  // namespace sinew
