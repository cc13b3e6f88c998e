#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/node.h"
#include "plan/plan.h"

namespace sinew {

// What a model asks of the nodes that hold it. Made once from its file, then travels by itself: the
// coordinator need not have the file.
struct ModelNeeds {
  std::uint64_t split_bytes = 0;     // divided among the nodes of a stage: weights and cache
  std::uint64_t mirrored_bytes = 0;  // held by every node of a stage
  std::uint32_t units = 1;           // shares into which the layers of a stage are divided
  std::uint32_t layers = 1;
  friend bool operator==(const ModelNeeds&, const ModelNeeds&) = default;
};
// For a context of `cells` tokens with a cache of `cache_type`. plan/ rounds every dimension of the
// model to its own units, so that a node's bytes may differ from its share by one of each; the node
// checks its own plan again before it loads. kUsage as for make_plan.
Result<ModelNeeds> model_needs(const ModelSpec& spec, const std::vector<BoundTensor>& tensors,
                               std::int64_t cells, TensorType cache_type);

enum class OnLoss : std::uint8_t {
  kReplace,  // place again at once on what is left; wait only if it does not fit
  kWait,     // wait for the node up to `wait_for`, then as kReplace
};
enum class OnReturn : std::uint8_t {
  kStay,   // what runs goes on; the node is used at the next placement
  kWiden,  // end the epoch and place again on all nodes
};

// A model that the cluster should run.
struct DesiredModel {
  ModelId id;
  std::string name;
  ModelNeeds needs;
  std::uint32_t nodes_min = 1;
  OnLoss on_loss = OnLoss::kReplace;
  OnReturn on_return = OnReturn::kStay;
  std::uint64_t wait_ms = 30000;
  friend bool operator==(const DesiredModel&, const DesiredModel&) = default;
};

// kUsage for needs that no model has: of sizes that overflow, or divided into nothing.
Status check_needs(const DesiredModel& model);

// One node's part: `units` of the layers of `stage`.
struct NodeShare {
  NodeId node;
  std::uint64_t incarnation = 0;
  std::uint32_t stage = 0;
  std::uint32_t units = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const NodeShare&, const NodeShare&) = default;
};

// Who runs a model in one epoch. Rank i is `shares[i]`; the head is rank 0. Epochs are unique and
// grow over the life of a cluster; `term` is that of the coordinator that made it.
struct Assignment {
  Epoch epoch = 0;
  std::uint64_t term = 0;
  std::vector<std::uint32_t> stage_layers;  // layers of each stage
  std::vector<NodeShare> shares;
  const NodeShare* share_of(const NodeId& node) const;
  // As plan/ takes it.
  Layout layout() const;
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// A model and, while it runs, its assignment.
struct ModelState {
  DesiredModel desired;
  std::optional<Assignment> assignment;
  friend bool operator==(const ModelState&, const ModelState&) = default;
};

// The cluster's one agreed value: written by the coordinator through a majority of `voters`.
struct ClusterState {
  std::vector<NodeId> voters;
  Epoch last_epoch = 0;
  std::vector<ModelState> models;
  friend bool operator==(const ClusterState&, const ClusterState&) = default;
};

// Order of two of them: that of a later term is newer whatever its version.
struct ValueTag {
  std::uint64_t term = 0;
  std::uint64_t version = 0;
  friend auto operator<=>(const ValueTag&,
                          const ValueTag&) = default;  // NOLINT(modernize-use-nullptr)
};

// A node that may hold a share.
struct PlacementNode {
  NodeId id;
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint64_t available_bytes = 0;
  // Nodes of one group are joined by fast links and divide layers; groups follow each other as
  // stages.
  std::uint32_t group = 0;
};

// Places a model: one stage for each group, layers by the groups' memory, units within a stage by
// the nodes' memory. Nodes for which nothing would be left are not used. Epoch and term are left 0.
// kNoMemory with the arithmetic of each node if it does not fit, kUsage if there are fewer nodes
// than the model wants.
Result<Assignment> place_model(const DesiredModel& model, std::vector<PlacementNode> nodes);

}  // namespace sinew
