#include "cluster/assignment.h"

#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace sinew {
namespace {

PlacementNode node(std::uint8_t id, std::uint64_t available, std::uint32_t group = 0) {
  PlacementNode n;
  n.id.bytes.fill(id);
  n.name = "node-" + std::to_string(id);
  n.incarnation = 1;
  n.available_bytes = available;
  n.group = group;
  return n;
}

DesiredModel model(std::uint64_t split, std::uint64_t mirrored, std::uint32_t units = 64) {
  DesiredModel m;
  m.name = "kimi";
  m.needs = {split, mirrored, units, 60};
  return m;
}

TEST(PlaceModel, SharesFollowMemoryBeyondTheMirroredPart) {
  const auto placed =
      place_model(model(6000, 100), {node(1, 2100), node(2, 4100), node(3, 4100), node(4, 2100)});
  ASSERT_TRUE(placed) << placed.error().message;
  ASSERT_EQ(placed->shares.size(), 4U);
  EXPECT_EQ(placed->shares[0].node, node(2, 0).id);  // the largest is the head
  EXPECT_EQ(placed->shares[0].units, 21U);
  EXPECT_EQ(placed->shares[3].units, 11U);
  std::uint32_t units = 0;
  for (const NodeShare& s : placed->shares) units += s.units;
  EXPECT_EQ(units, 64U);
}

TEST(PlaceModel, RefusesWithTheArithmeticOfEachNode) {
  const auto placed = place_model(model(6000, 100), {node(1, 2000), node(2, 3000)});
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kNoMemory);
  for (const char* part : {"node-1", "node-2", "of 2000 available", "of 3000 available"})
    EXPECT_NE(placed.error().message.find(part), std::string::npos) << placed.error().message;
}

TEST(PlaceModel, FitsToTheLastUnit) {
  // 4 units of 250 bytes; proportion alone would round one node over its memory.
  const auto placed = place_model(model(1000, 0, 4), {node(1, 749), node(2, 500)});
  ASSERT_TRUE(placed) << placed.error().message;
  for (const NodeShare& s : placed->shares) EXPECT_EQ(s.bytes, 500U);
}

TEST(PlaceModel, GroupsBecomeStages) {
  const auto placed = place_model(
      model(6000, 0), {node(1, 4000, 0), node(2, 4000, 0), node(3, 2000, 2), node(4, 2000, 2)});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->stage_layers, (std::vector<std::uint32_t>{40, 20}));
  const Layout layout = placed->layout();
  EXPECT_EQ(layout.stages, (std::vector<int>{2, 2}));
  EXPECT_DOUBLE_EQ(layout.shares[0], 20.0);
  EXPECT_DOUBLE_EQ(layout.shares[2], 10.0);
}

TEST(PlaceModel, AsksForTheNodesThatTheModelWants) {
  DesiredModel m = model(10, 0);
  m.nodes_min = 2;
  const auto placed = place_model(m, {node(1, 1000)});
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kUsage);
}

TEST(PlaceModel, ANodeWithoutRoomGetsNothing) {
  const auto placed = place_model(model(1000, 100), {node(1, 5000), node(2, 50)});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->shares.size(), 1U);
}

TEST(ModelNeeds, PartsAddUpToTheWholePlan) {
  const auto made = test::TinyModel::make(test::tiny_llama_spec(), TensorType::kF32);
  ASSERT_TRUE(made) << made.error().message;
  const test::TinyModel& tiny = **made;
  const auto needs = model_needs(tiny.spec, tiny.tensors, 128, TensorType::kF16);
  ASSERT_TRUE(needs) << needs.error().message;
  Layout layout;
  layout.shares = {1};
  const auto plan = make_plan(tiny.spec, tiny.tensors, layout);
  ASSERT_TRUE(plan);
  const RankMemory memory = rank_memory(tiny.spec, tiny.tensors, *plan, 0, 128, TensorType::kF16);
  EXPECT_EQ(needs->split_bytes + needs->mirrored_bytes, memory.weight_bytes + memory.cache_bytes);
  EXPECT_GT(needs->mirrored_bytes, 0U);  // norms, at least
}

}  // namespace
}  // namespace sinew
