// Graphs are built into room that is measured before: ggml ends the process where it is too small.
#include "graph/step_graph.h"

#include <gtest/gtest.h>

#include "model/spec_reader.h"
#include "support/tiny_model.h"

namespace sinew {
namespace {

using test::tiny_sparse_spec;
using test::TinyModel;

// One rank's graph of a model whose weights are never read.
struct BuiltGraph {
  std::unique_ptr<TinyModel> model;
  Plan plan;
  std::unique_ptr<Device> device;
  Weights weights;
  KvCache cache;
  ggml_gallocr_ptr allocator;
  std::unique_ptr<StepGraph> graph;

  static Result<std::unique_ptr<BuiltGraph>> make(const ModelSpec& spec, const Layout& layout,
                                                  std::int64_t context) {
    auto built = std::make_unique<BuiltGraph>();
    SINEW_ASSIGN(built->model, TinyModel::make(spec, TensorType::kF16));
    const ModelSpec& read = built->model->spec;
    SINEW_ASSIGN(built->plan, make_plan(read, built->model->tensors, layout));
    SINEW_ASSIGN(built->device, Device::open("CPU", 1));
    SINEW_ASSIGN(
        built->weights,
        Weights::allocate(*built->device, make_load_list(built->model->tensors, built->plan, 0)));
    const CacheShape shape{built->plan.stage(0).layers,
                           static_cast<int>(built->plan.range(0, Dimension::kHeads).size()),
                           context};
    SINEW_ASSIGN(built->cache, KvCache::allocate(*built->device, read, shape));
    built->allocator.reset(ggml_gallocr_new(built->device->default_buffers()));
    const RankModel rank{read, built->plan, 0, *built->device, built->weights, built->cache};
    StepShape step;
    step.tokens = 4;
    step.rows = 1;
    step.cells = context;
    step.logits = true;
    SINEW_ASSIGN(built->graph, StepGraph::build(rank, step, built->allocator.get()));
    return built;
  }

  std::size_t nodes() const {
    std::size_t count = 0;
    for (const Segment& segment : graph->segments())
      count += static_cast<std::size_t>(ggml_graph_n_nodes(segment.graph));
    return count;
  }
};

TEST(StepGraph, EveryFamilyLeavesAThirdOfItsRoomWithAsManyExpertsAsMayBeUsed) {
  for (ModelSpec spec : test::tiny_specs()) {
    if (spec.experts.count > 0) {
      spec.experts.count = 2 * SpecReader::kExpertsUsedMax;
      spec.experts.used = SpecReader::kExpertsUsedMax;
      spec.experts.columns = 32;
      spec.experts.dense_layers = 0;
    }
    for (const bool whole_experts : {false, true}) {
      if (whole_experts && spec.experts.count == 0) continue;
      for (const std::size_t ranks : {1U, 2U}) {
        SCOPED_TRACE(testing::Message() << spec.architecture << ", " << ranks << " ranks");
        const Layout layout{std::vector<double>(ranks, 1.0), {}, whole_experts};
        const auto built = BuiltGraph::make(spec, layout, 64);
        ASSERT_TRUE(built) << built.error().message;
        EXPECT_LE((*built)->nodes() * 3 / 2, graph_node_capacity((*built)->model->spec));
      }
    }
  }
}

TEST(KvCache, HoldsWhatThePlanCountsForIt) {
  ModelSpec spec = tiny_sparse_spec("glm-dsa");
  spec.indexer.layers = {true, false};
  for (const ModelSpec& each : {spec, tiny_sparse_spec("deepseek32"), test::tiny_deepseek_spec()}) {
    SCOPED_TRACE(each.architecture);
    constexpr std::int64_t kContext = 64;
    const auto built = BuiltGraph::make(each, {{1}, {}, false}, kContext);
    ASSERT_TRUE(built) << built.error().message;
    const BuiltGraph& graph = **built;
    const RankMemory memory = rank_memory(graph.model->spec, graph.model->tensors, graph.plan, 0,
                                          kContext, TensorType::kF16);
    EXPECT_EQ(graph.cache.bytes(), memory.cache_bytes);
    for (int layer = 0; layer < each.layers; ++layer)
      EXPECT_EQ(graph.cache.index_keys(layer) != nullptr, graph.model->spec.indexes(layer));
  }
}

}  // namespace
}  // namespace sinew
