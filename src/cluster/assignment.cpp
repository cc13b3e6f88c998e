#include "cluster/assignment.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/limits.h"

namespace sinew {
namespace {

constexpr std::uint32_t kUnits = 256;
constexpr std::uint32_t kUnitsMax = 1u << 16;
constexpr std::uint32_t kLayersMax = 1u << 12;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 46;  // times units and layers fits 128 bits

// `bytes * part / whole`, rounded up: a node must have at least this.
std::uint64_t portion(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole) {
  const auto product = static_cast<unsigned __int128>(bytes) * part;
  return static_cast<std::uint64_t>((product + whole - 1) / whole);
}

struct StagePlan {
  std::vector<PlacementNode> nodes;
  std::uint32_t layers = 0;
  std::uint64_t mirrored_bytes = 0;
  std::uint64_t split_bytes = 0;
  std::vector<std::int64_t> units;
};

std::uint64_t total_available(const std::vector<PlacementNode>& nodes) {
  return std::accumulate(
      nodes.begin(), nodes.end(), std::uint64_t{0},
      [](std::uint64_t sum, const PlacementNode& n) { return sum + n.available_bytes; });
}

std::uint64_t node_bytes(const StagePlan& stage, std::int64_t units, std::uint32_t of) {
  return stage.mirrored_bytes + portion(stage.split_bytes, static_cast<std::uint64_t>(units), of);
}

// Units in proportion to what a node has beyond the mirrored part; what rounding put over a node's
// memory goes to the nodes that have room.
void divide_stage(StagePlan& stage, std::uint32_t units) {
  std::vector<double> room;
  for (const PlacementNode& n : stage.nodes)
    room.push_back(n.available_bytes > stage.mirrored_bytes
                       ? static_cast<double>(n.available_bytes - stage.mirrored_bytes)
                       : 0.0);
  // Nobody has room: the refusal shows equal shares.
  if (std::ranges::all_of(room, [](double r) { return r == 0; })) std::ranges::fill(room, 1.0);
  stage.units = apportion(units, room);
  const auto fits = [&](std::size_t i, std::int64_t count) {
    return node_bytes(stage, count, units) <= stage.nodes[i].available_bytes;
  };
  std::int64_t spare = 0;
  for (std::size_t i = 0; i < stage.nodes.size(); ++i)
    while (stage.units[i] > 1 && !fits(i, stage.units[i])) --stage.units[i], ++spare;
  for (std::size_t i = 0; i < stage.nodes.size(); ++i)
    while (spare > 0 && fits(i, stage.units[i] + 1)) ++stage.units[i], --spare;
  stage.units.front() += spare;  // it does not fit; the refusal counts every unit
}

std::vector<StagePlan> make_stages(const DesiredModel& model, std::vector<PlacementNode> nodes) {
  std::map<std::uint32_t, StagePlan> by_group;
  for (PlacementNode& n : nodes) by_group[n.group].nodes.push_back(std::move(n));
  std::vector<StagePlan> stages;
  for (auto& [group, stage] : by_group) stages.push_back(std::move(stage));
  std::ranges::stable_sort(stages, [](const StagePlan& a, const StagePlan& b) {
    return total_available(a.nodes) > total_available(b.nodes);
  });
  if (stages.size() > model.needs.layers) stages.resize(model.needs.layers);
  std::vector<double> weights;
  for (const StagePlan& s : stages)
    weights.push_back(std::max(1.0, static_cast<double>(total_available(s.nodes))));
  const auto more =
      apportion(static_cast<std::int64_t>(model.needs.layers - stages.size()), weights);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    StagePlan& stage = stages[s];
    stage.layers = static_cast<std::uint32_t>(1 + more[s]);
    stage.mirrored_bytes = portion(model.needs.mirrored_bytes, stage.layers, model.needs.layers);
    stage.split_bytes = portion(model.needs.split_bytes, stage.layers, model.needs.layers);
    divide_stage(stage, model.needs.units);
  }
  return stages;
}

}  // namespace

Result<ModelNeeds> model_needs(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                               std::int64_t cells, TensorType cache_type) {
  Layout layout;
  layout.shares = {1};
  SINEW_ASSIGN(const Plan whole, make_plan(spec, tensors, layout));
  layout.shares = {1, 1};
  SINEW_ASSIGN(const Plan halves, make_plan(spec, tensors, layout));
  const auto bytes = [&](const Plan& plan, Rank rank) {
    const RankMemory memory = rank_memory(spec, tensors, plan, rank, cells, cache_type);
    return memory.weight_bytes + memory.cache_bytes;
  };
  // What two halves need beyond the whole is what each of them holds for itself.
  const std::uint64_t all = bytes(whole, 0);
  const std::uint64_t both = bytes(halves, 0) + bytes(halves, 1);
  ModelNeeds needs;
  needs.mirrored_bytes = both > all ? both - all : 0;
  needs.split_bytes = all - std::min(all, needs.mirrored_bytes);
  needs.units = kUnits;
  needs.layers = static_cast<std::uint32_t>(spec.layers);
  return needs;
}

Status check_needs(const DesiredModel& model) {
  const ModelNeeds& n = model.needs;
  if (n.units < 1 || n.units > kUnitsMax || n.layers < 1 || n.layers > kLayersMax ||
      n.split_bytes > kBytesMax || n.mirrored_bytes > kBytesMax || model.nodes_min < 1 ||
      model.nodes_min > static_cast<std::uint32_t>(kRankCountMax) || model.wait_ms > 86'400'000)
    return fail(ErrorCode::kUsage, "the needs of model '{}' are outside their limits", model.name);
  return {};
}

const NodeShare* Assignment::share_of(const NodeId& node) const {
  const auto it = std::ranges::find(shares, node, &NodeShare::node);
  return it == shares.end() ? nullptr : &*it;
}

Layout Assignment::layout() const {
  Layout layout;
  // A rank's weight is its part of the whole model: plan/ adds those of a stage for its layers.
  for (const NodeShare& s : shares) {
    const double of_stage = std::accumulate(
        shares.begin(), shares.end(), 0.0,
        [&](double sum, const NodeShare& o) { return o.stage == s.stage ? sum + o.units : sum; });
    layout.shares.push_back(s.units / of_stage * stage_layers[s.stage]);
  }
  if (stage_layers.size() > 1)
    for (std::uint32_t stage = 0; stage < stage_layers.size(); ++stage)
      layout.stages.push_back(
          static_cast<int>(std::ranges::count(shares, stage, &NodeShare::stage)));
  return layout;
}

Result<Assignment> place_model(const DesiredModel& model, std::vector<PlacementNode> nodes) {
  SINEW_TRY(check_needs(model));
  std::ranges::sort(nodes, [](const PlacementNode& a, const PlacementNode& b) {
    return a.available_bytes != b.available_bytes ? a.available_bytes > b.available_bytes
                                                  : a.id < b.id;
  });
  if (nodes.size() > static_cast<std::size_t>(kRankCountMax))
    nodes.resize(static_cast<std::size_t>(kRankCountMax));
  if (nodes.size() < model.nodes_min || nodes.empty())
    return fail(ErrorCode::kUsage, "model '{}' wants {} nodes; {} can be used now", model.name,
                model.nodes_min, nodes.size());
  const std::vector<StagePlan> stages = make_stages(model, std::move(nodes));
  Assignment result;
  std::string arithmetic;
  bool fits = true;
  for (std::uint32_t s = 0; s < stages.size(); ++s) {
    const StagePlan& stage = stages[s];
    result.stage_layers.push_back(stage.layers);
    for (std::size_t i = 0; i < stage.nodes.size(); ++i) {
      const PlacementNode& node = stage.nodes[i];
      const std::uint64_t bytes = node_bytes(stage, stage.units[i], model.needs.units);
      arithmetic += fmt::format(
          "; {} {}: {} of {} units of {} layers are {}, its own part {}, together {} "
          "bytes of {} available",
          node.name, node.id.short_name(), stage.units[i], model.needs.units, stage.layers,
          bytes - stage.mirrored_bytes, stage.mirrored_bytes, bytes, node.available_bytes);
      if (stage.units[i] == 0) continue;
      fits = fits && bytes <= node.available_bytes;
      result.shares.push_back(
          {node.id, node.incarnation, s, static_cast<std::uint32_t>(stage.units[i]), bytes});
    }
  }
  if (!fits) return fail(ErrorCode::kNoMemory, "model '{}' does not fit{}", model.name, arithmetic);
  if (result.shares.size() < model.nodes_min)
    return fail(ErrorCode::kUsage, "model '{}' wants {} nodes, but only {} have room for a part{}",
                model.name, model.nodes_min, result.shares.size(), arithmetic);
  return result;
}

}  // namespace sinew
