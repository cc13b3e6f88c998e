#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/limits.h"

namespace sinew {

std::vector<std::int64_t> apportion(std::int64_t units, const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> shares(weights.size());
  std::vector<double> remainders(weights.size());
  std::int64_t left = units;
  for (std::size_t r = 0; r < weights.size(); ++r) {
    const double exact = static_cast<double>(units) * (weights[r] / total);
    shares[r] = std::min(static_cast<std::int64_t>(std::floor(exact)), left);
    remainders[r] = exact - std::floor(exact);
    left -= shares[r];
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (remainders[a] != remainders[b]) return remainders[a] > remainders[b];
    return weights[a] > weights[b];
  });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++shares[order[i]];
  return shares;
}

Result<Plan> make_plan(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const std::vector<double>& weights) {
  if (weights.empty() || weights.size() > static_cast<std::size_t>(kRankCountMax))
    return fail(ErrorCode::kUsage, "{} ranks asked for; 1 to {} are possible", weights.size(),
                kRankCountMax);
  for (const double weight : weights)
    if (!std::isfinite(weight) || weight <= 0)
      return fail(
          ErrorCode::kUsage,
          "share {} is not a positive number; give every rank a weight, as in --shares 3,3,1,1",
          weight);

  Plan plan;
  plan.ranks = static_cast<int>(weights.size());
  plan.ranges.resize(weights.size());
  const auto units = split_units(spec, tensors);
  for (std::size_t d = 0; d < kDimensionCount; ++d) {
    const std::int64_t size = dimension_size(spec, static_cast<Dimension>(d));
    const std::int64_t unit = units[d];
    const std::vector<std::int64_t> shares = apportion((size + unit - 1) / unit, weights);
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < weights.size(); ++r) {
      const std::int64_t end = std::min(size, begin + shares[r] * unit);
      plan.ranges[r][d] = IndexRange{begin, end};
      begin = end;
    }
  }
  for (Rank rank = 0; rank < plan.ranks; ++rank) {
    const auto& ranges = plan.ranges[static_cast<std::size_t>(rank)];
    if (std::all_of(ranges.begin(), ranges.end(),
                    [](IndexRange range) { return range.size() == 0; }))
      return fail(ErrorCode::kUsage,
                  "rank {} would hold nothing: its share {} of {} is too small for this model; use "
                  "fewer ranks or a larger share",
                  rank, weights[static_cast<std::size_t>(rank)],
                  std::accumulate(weights.begin(), weights.end(), 0.0));
  }
  return plan;
}

std::string explain_rank(const ModelSpec& spec, const Plan& plan, Rank rank) {
  std::string text;
  for (std::size_t d = 0; d < kDimensionCount; ++d) {
    const auto dimension = static_cast<Dimension>(d);
    const std::int64_t size = dimension_size(spec, dimension);
    if (size == 0) continue;
    const IndexRange range = plan.range(rank, dimension);
    if (!text.empty()) text += ", ";
    text += fmt::format("{} of {} {}", range.size(), size, dimension_name(dimension));
  }
  return text;
}

RankMemory rank_memory(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const Plan& plan, Rank rank, std::int64_t cells) {
  RankMemory memory;
  for (const BoundTensor& tensor : tensors) {
    const SplitRule& rule = tensor.decl.split;
    if (rule.mirrored) {
      memory.weight_bytes += tensor.info->bytes;
      continue;
    }
    const IndexRange range = plan.range(rank, rule.dimension);
    memory.weight_bytes +=
        slice_bytes(*tensor.info, rule.axis,
                    {range.begin * rule.elements_per_index, range.end * rule.elements_per_index})
            .total();
  }
  const std::int64_t heads = plan.range(rank, Dimension::kHeads).size();
  if (heads > 0)
    memory.cache_bytes = static_cast<std::uint64_t>(
        2 * spec.cached_elements(static_cast<int>(heads)) * spec.layers * cells);
  return memory;
}

}  // namespace sinew
