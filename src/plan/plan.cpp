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

namespace {

// Layers with which a pipeline stage may begin, in order.
std::vector<std::int64_t> stage_beginnings(const ModelSpec& spec) {
  std::vector<std::int64_t> layers;
  for (int layer = 0; layer < spec.layers; ++layer)
    if (spec.may_begin_stage(layer)) layers.push_back(layer);
  return layers;
}

Status check_layout(const ModelSpec& spec, const Layout& layout) {
  const std::size_t ranks = layout.shares.size();
  if (ranks == 0 || ranks > static_cast<std::size_t>(kRankCountMax))
    return fail(ErrorCode::kUsage, "{} ranks asked for; 1 to {} are possible", ranks,
                kRankCountMax);
  for (const double weight : layout.shares)
    if (!std::isfinite(weight) || weight <= 0)
      return fail(
          ErrorCode::kUsage,
          "share {} is not a positive number; give every rank a weight, as in --shares 3,3,1,1",
          weight);
  std::int64_t staged = 0;
  for (const int stage : layout.stages) {
    if (stage < 1 || stage > kRankCountMax)
      return fail(ErrorCode::kUsage,
                  "a pipeline stage of {} ranks is not possible; give every stage its number of "
                  "ranks, as in --stages 2,2",
                  stage);
    staged += stage;
  }
  if (!layout.stages.empty() && staged != static_cast<std::int64_t>(ranks))
    return fail(ErrorCode::kUsage, "the stages have {} ranks together, but there are {}", staged,
                ranks);
  if (layout.stages.size() > static_cast<std::size_t>(spec.layers))
    return fail(ErrorCode::kUsage, "{} pipeline stages for {} layers; use fewer stages",
                layout.stages.size(), spec.layers);
  if (const std::size_t most = stage_beginnings(spec).size(); layout.stages.size() > most)
    return fail(ErrorCode::kUsage,
                "{} pipeline stages, but only {} of {} layers have an indexer of their own and can "
                "begin one; use fewer stages",
                layout.stages.size(), most, spec.layers);
  if (layout.whole_experts && spec.experts.count == 0)
    return fail(ErrorCode::kUsage,
                "the model has no experts to be handed out whole; leave --experts out");
  return {};
}

// Layers in proportion to the stages' shares, or as near as stages may begin; none is left without
// a layer.
std::vector<Stage> make_stages(const ModelSpec& spec, const Layout& layout) {
  const std::vector<int> counts = layout.stages.empty()
                                      ? std::vector<int>{static_cast<int>(layout.shares.size())}
                                      : layout.stages;
  std::vector<Stage> stages;
  std::vector<double> weights;
  Rank next = 0;
  for (const int count : counts) {
    const auto first = layout.shares.begin() + next;
    weights.push_back(std::accumulate(first, first + count, 0.0));
    stages.push_back({next, count, {}});
    next += count;
  }
  const auto stage_count = static_cast<std::int64_t>(stages.size());
  const std::vector<std::int64_t> more = apportion(spec.layers - stage_count, weights);
  const std::vector<std::int64_t> beginnings = stage_beginnings(spec);
  std::size_t chosen = 0;
  std::int64_t wished = 0;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    wished += 1 + more[s];
    // Every later stage needs one of the beginnings that are left.
    const std::size_t last = beginnings.size() - (stages.size() - 1 - s);
    ++chosen;
    while (chosen < last &&
           std::abs(beginnings[chosen + 1] - wished) <= std::abs(beginnings[chosen] - wished))
      ++chosen;
    stages[s].layers.end = stages[s + 1].layers.begin = beginnings[chosen];
  }
  stages.back().layers.end = spec.layers;
  return stages;
}

// True if ranks hold all of the dimension: experts are cut by columns or handed out whole.
bool undivided(const Plan& plan, Dimension dimension) {
  return dimension == (plan.whole_experts ? Dimension::kExpertColumns : Dimension::kExperts);
}

void divide_stage(const Stage& stage, const ModelSpec& spec, const Layout& layout,
                  const std::array<std::int64_t, kDimensionCount>& units, Plan& plan) {
  const auto first = layout.shares.begin() + stage.first;
  const std::vector<double> weights(first, first + stage.ranks);
  for (std::size_t d = 0; d < kDimensionCount; ++d) {
    const auto dimension = static_cast<Dimension>(d);
    const std::int64_t size = dimension_size(spec, dimension);
    const std::int64_t unit = units[d];
    const std::vector<std::int64_t> shares = apportion((size + unit - 1) / unit, weights);
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < weights.size(); ++r) {
      const std::int64_t end = std::min(size, begin + shares[r] * unit);
      plan.ranges[static_cast<std::size_t>(stage.first) + r][d] =
          undivided(plan, dimension) ? IndexRange{0, size} : IndexRange{begin, end};
      begin = end;
    }
  }
}

bool holds_nothing(const Plan& plan, Rank rank) {
  for (std::size_t d = 0; d < kDimensionCount; ++d) {
    const auto dimension = static_cast<Dimension>(d);
    if (!undivided(plan, dimension) && plan.range(rank, dimension).size() > 0) return false;
  }
  return true;
}

}  // namespace

std::size_t Plan::stage_index(Rank rank) const {
  std::size_t index = 0;
  while (rank >= stages[index].first + stages[index].ranks) ++index;
  return index;
}

SplitRule Plan::rule(const TensorDecl& decl) const {
  if (whole_experts && decl.expert_axis >= 0)
    return SplitRule{false, Dimension::kExperts, decl.expert_axis, 1};
  return decl.split;
}

bool Plan::needed(const Stage& stage, const TensorDecl& decl) const {
  const bool is_first = stage.first == 0;
  const bool is_last = stage.first + stage.ranks == ranks;
  switch (decl.place) {
    case Place::kEveryStage:
      return true;
    case Place::kFirstStage:
      return is_first;
    case Place::kLastStage:
      return is_last;
    case Place::kLayer:
      return decl.layer >= stage.layers.begin && decl.layer < stage.layers.end;
  }
  return false;
}

std::optional<HeldPart> Plan::part(Rank rank, const TensorDecl& decl) const {
  if (!needed(stage(rank), decl)) return std::nullopt;
  const SplitRule split = rule(decl);
  if (split.mirrored) return HeldPart{3, {0, decl.shape[3]}};
  const IndexRange indices = range(rank, split.dimension);
  if (indices.size() == 0) return std::nullopt;
  return HeldPart{
      split.axis,
      {indices.begin * split.elements_per_index, indices.end * split.elements_per_index}};
}

Result<Plan> make_plan(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const Layout& layout) {
  SINEW_TRY(check_layout(spec, layout));
  Plan plan;
  plan.ranks = static_cast<int>(layout.shares.size());
  plan.ranges.resize(layout.shares.size());
  plan.whole_experts = layout.whole_experts;
  plan.stages = make_stages(spec, layout);
  const auto units = split_units(spec, tensors);
  for (const Stage& stage : plan.stages) divide_stage(stage, spec, layout, units, plan);
  for (Rank rank = 0; rank < plan.ranks; ++rank) {
    if (holds_nothing(plan, rank))
      return fail(ErrorCode::kUsage,
                  "rank {} would hold nothing: its share {} of {} is too small for this model; use "
                  "fewer ranks or a larger share",
                  rank, layout.shares[static_cast<std::size_t>(rank)],
                  std::accumulate(layout.shares.begin(), layout.shares.end(), 0.0));
  }
  return plan;
}

std::string explain_rank(const ModelSpec& spec, const Plan& plan, Rank rank) {
  std::string text;
  if (plan.stages.size() > 1) {
    const IndexRange layers = plan.stage(rank).layers;
    text = fmt::format("layers {} to {} of {}", layers.begin, layers.end - 1, spec.layers);
  }
  for (std::size_t d = 0; d < kDimensionCount; ++d) {
    const auto dimension = static_cast<Dimension>(d);
    const std::int64_t size = dimension_size(spec, dimension);
    if (size == 0 || undivided(plan, dimension)) continue;
    const IndexRange range = plan.range(rank, dimension);
    if (!text.empty()) text += ", ";
    text += fmt::format("{} of {} {}", range.size(), size, dimension_name(dimension));
  }
  return text;
}

std::uint64_t cache_row_bytes(const ModelSpec& spec, int kv_heads, TensorType cache_type) {
  const TensorTypeTraits& traits = *tensor_type_traits(cache_type);
  const auto elements =
      static_cast<std::uint64_t>(spec.cached_keys(kv_heads) + spec.cached_values(kv_heads));
  return elements / traits.block_length * traits.block_bytes;
}

Status check_cache_type(const ModelSpec& spec, TensorType cache_type) {
  if (cache_type != TensorType::kF16 && cache_type != TensorType::kQ8_0 &&
      cache_type != TensorType::kQ4_0)
    return fail(ErrorCode::kUsage, "the KV cache may be of type f16, q8_0 or q4_0");
  const TensorTypeTraits& traits = *tensor_type_traits(cache_type);
  for (const std::int64_t elements : {spec.cached_keys(1), spec.cached_values(1)})
    if (static_cast<std::uint64_t>(elements) % traits.block_length != 0)
      return fail(
          ErrorCode::kUsage,
          "a KV cache of type {} has blocks of {} elements, but a head of this model has {}; "
          "use --cache-type f16",
          traits.name, traits.block_length, elements);
  return {};
}

RankMemory rank_memory(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                       const Plan& plan, Rank rank, std::int64_t cells, TensorType cache_type) {
  RankMemory memory;
  for (const BoundTensor& tensor : tensors)
    if (const auto part = plan.part(rank, tensor.decl))
      memory.weight_bytes += slice_bytes(*tensor.info, part->axis, part->range).total();
  const auto heads = static_cast<int>(plan.range(rank, Dimension::kHeads).size());
  const IndexRange layers = plan.stage(rank).layers;
  memory.cache_bytes =
      cache_row_bytes(spec, heads, cache_type) * static_cast<std::uint64_t>(layers.size() * cells);
  const std::uint64_t half_bytes = tensor_type_traits(TensorType::kF16)->block_bytes;
  for (auto layer = static_cast<int>(layers.begin); layer < layers.end; ++layer)
    memory.cache_bytes +=
        half_bytes * static_cast<std::uint64_t>(spec.cached_index_keys(layer, heads) * cells);
  return memory;
}

}  // namespace sinew
