#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/slice.h"
#include "model/tensor_decl.h"

namespace sinew {

// How a model is to be spread. Ranks of one pipeline stage hold the same layers and divide each of
// them; stages hold consecutive layers and pass the hidden state on.
struct Layout {
  std::vector<double> shares;  // weight of each rank
  std::vector<int> stages;     // ranks of each stage, in rank order; empty: one stage of all
  // Ranks of a stage hold whole experts rather than columns of every expert: for experts too thin
  // to be cut. Every rank then works on all tokens, so prefill gains less.
  bool whole_experts = false;
};

// Consecutive ranks that hold the same layers.
struct Stage {
  Rank first = 0;
  int ranks = 1;
  IndexRange layers;
};

// What a rank holds of a tensor: the elements `range` along `axis`.
struct HeldPart {
  int axis = 3;
  IndexRange range;
};

// Who holds what: for every rank its stage and, for every dimension, a range of indices. A value:
// print it, compare it, test it without a cluster. All ranks compute the same plan from the same
// file and layout.
struct Plan {
  int ranks = 1;
  std::vector<std::array<IndexRange, kDimensionCount>> ranges;  // by rank
  std::vector<Stage> stages;
  bool whole_experts = false;

  IndexRange range(Rank rank, Dimension dimension) const {
    return ranges[static_cast<std::size_t>(rank)][static_cast<std::size_t>(dimension)];
  }
  std::size_t stage_index(Rank rank) const;
  const Stage& stage(Rank rank) const { return stages[stage_index(rank)]; }
  // Nothing if the rank holds none of the tensor; all of it if the tensor is mirrored.
  std::optional<HeldPart> part(Rank rank, const TensorDecl& decl) const;
  // The rule by which ranks of a stage divide a tensor.
  SplitRule rule(const TensorDecl& decl) const;
  bool needed(const Stage& stage, const TensorDecl& decl) const;
};

// Hands out `units` whole units to ranks in proportion to `weights` by largest remainder; among
// equal remainders the rank with the larger weight, then the lower rank, comes first. The result
// sums to `units`.
std::vector<std::int64_t> apportion(std::int64_t units, const std::vector<double>& weights);

// kUsage if the number of ranks is not 1 .. kRankCountMax, the layout contradicts itself or the
// model, or a rank would be left with nothing at all.
Result<Plan> make_plan(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const Layout& layout);

// One line a rank for people: "2 of 8 attention heads, ...".
std::string explain_rank(const ModelSpec& spec, const Plan& plan, Rank rank);

// Bytes that a rank needs: its slices, and its part of the KV cache, of elements of `cache_type`,
// for `cells` tokens.
struct RankMemory {
  std::uint64_t weight_bytes = 0;
  std::uint64_t cache_bytes = 0;
};
RankMemory rank_memory(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const Plan& plan, Rank rank, std::int64_t cells, TensorType cache_type);

// Bytes of one layer's keys and values of one token, for a rank that holds `kv_heads` heads;
// without the key of an indexer.
std::uint64_t cache_row_bytes(const ModelSpec& spec, int kv_heads, TensorType cache_type);
// A cache row holds whole blocks of its type for every head. kUsage if it does not.
Status check_cache_type(const ModelSpec& spec, TensorType cache_type);

}  // namespace sinew
