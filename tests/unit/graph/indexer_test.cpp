#include "graph/indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace sinew {
namespace {

constexpr std::int64_t kDimensions = 64;
constexpr std::int64_t kHeads = 6;
constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kCells = 48;
constexpr int kCount = 12;

// Random inputs, and what is computed from them on the processor.
class IndexerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::open("CPU", 1);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    context_.reset(ggml_init({ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true}));
    in_.queries = ggml_new_tensor_3d(context_.get(), GGML_TYPE_F32, kDimensions, kHeads, kTokens);
    in_.keys = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F16, kDimensions, kCells);
    in_.weights = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, kHeads, kTokens);
    in_.mask = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F16, kCells, kTokens);
  }

  void compute(std::initializer_list<ggml_tensor*> results) {
    ggml_cgraph* graph = ggml_new_graph(context_.get());
    for (ggml_tensor* result : results) ggml_build_forward_expand(graph, result);
    buffer_.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), device_->default_buffers()));
    ASSERT_NE(buffer_, nullptr);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, std::int64_t count) {
      values.resize(static_cast<std::size_t>(count));
      for (float& value : values) value = normal(random);
    };
    fill(queries_, kDimensions * kHeads * kTokens);
    fill(weights_, kHeads * kTokens);
    fill(keys_, kDimensions * kCells);
    std::vector<ggml_fp16_t> keys(keys_.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      keys[i] = ggml_fp32_to_fp16(keys_[i]);
      keys_[i] = ggml_fp16_to_fp32(keys[i]);
    }
    std::vector<ggml_fp16_t> mask;
    for (std::int64_t token = 0; token < kTokens; ++token)
      for (std::int64_t cell = 0; cell < kCells; ++cell)
        mask.push_back(ggml_fp32_to_fp16(visible(token, cell) ? 0.0F : -INFINITY));
    set(in_.queries, queries_);
    set(in_.weights, weights_);
    set(in_.keys, keys);
    set(in_.mask, mask);
    ASSERT_EQ(ggml_backend_graph_compute(device_->backend(), graph), GGML_STATUS_SUCCESS);
  }

  // The first token sees fewer cells than are chosen, later ones more.
  static bool visible(std::int64_t token, std::int64_t cell) {
    return cell < kCount / 2 + token * 8;
  }

  double reference(std::int64_t token, std::int64_t cell) const {
    double score = 0;
    for (std::int64_t head = 0; head < kHeads; ++head) {
      double product = 0;
      for (std::int64_t i = 0; i < kDimensions; ++i)
        product += double{at(queries_, i + kDimensions * (head + kHeads * token))} *
                   double{at(keys_, i + kDimensions * cell)};
      score += std::max(product, 0.0) * double{at(weights_, head + kHeads * token)};
    }
    return score;
  }

  static float at(const std::vector<float>& values, std::int64_t index) {
    return values[static_cast<std::size_t>(index)];
  }
  template <typename T>
  static void set(ggml_tensor* tensor, const std::vector<T>& values) {
    ASSERT_EQ(values.size() * sizeof(T), ggml_nbytes(tensor));
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
  }
  template <typename T>
  static std::vector<T> get(ggml_tensor* tensor) {
    std::vector<T> values(static_cast<std::size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, values.size() * sizeof(T));
    return values;
  }

  std::unique_ptr<Device> device_;
  ggml_context_ptr context_;
  ggml_backend_buffer_ptr buffer_;
  IndexInputs in_{};
  std::vector<float> queries_, keys_, weights_;
};

// Whichever of the two a device can run, the cells chosen are the same.
TEST_F(IndexerTest, BothWaysGiveTheScoresOfTheFormula) {
  ggml_tensor* fused = fused_index_scores(context_.get(), in_);
  ggml_tensor* composed = composed_index_scores(context_.get(), in_);
  ASSERT_NO_FATAL_FAILURE(compute({fused, composed}));
  const std::vector<float> a = get<float>(fused);
  const std::vector<float> b = get<float>(composed);
  for (std::int64_t token = 0; token < kTokens; ++token) {
    for (std::int64_t cell = 0; cell < kCells; ++cell) {
      const std::int64_t i = cell + kCells * token;
      if (!visible(token, cell)) {
        EXPECT_EQ(at(a, i), -INFINITY);
        EXPECT_EQ(at(b, i), -INFINITY);
        continue;
      }
      // The product of matrices rounds its queries to F16: 2^-11 of each of the products, whose sum
      // grows as sqrt(dimensions x heads), about 20, for elements near 1. Four times that.
      EXPECT_NEAR(at(a, i), reference(token, cell), 1e-3);
      EXPECT_NEAR(at(b, i), reference(token, cell), 4e-2);
    }
  }
}

TEST_F(IndexerTest, MaskShowsTheBestOfTheVisibleCells) {
  ggml_tensor* scores = fused_index_scores(context_.get(), in_);
  ggml_tensor* kept = keep_best_cells(context_.get(), scores, in_.mask, kCount);
  ASSERT_NO_FATAL_FAILURE(compute({kept}));
  const std::vector<ggml_fp16_t> mask = get<ggml_fp16_t>(kept);
  for (std::int64_t token = 0; token < kTokens; ++token) {
    SCOPED_TRACE(token);
    std::vector<std::pair<double, std::int64_t>> order;
    for (std::int64_t cell = 0; cell < kCells; ++cell)
      if (visible(token, cell)) order.emplace_back(-reference(token, cell), cell);
    std::sort(order.begin(), order.end());
    order.resize(std::min<std::size_t>(order.size(), kCount));
    std::set<std::int64_t> expected;
    for (const auto& [score, cell] : order) expected.insert(cell);
    std::set<std::int64_t> shown;
    for (std::int64_t cell = 0; cell < kCells; ++cell) {
      const float value = ggml_fp16_to_fp32(mask[static_cast<std::size_t>(cell + kCells * token)]);
      if (value == 0)
        shown.insert(cell);
      else
        EXPECT_EQ(value, -INFINITY);
    }
    EXPECT_EQ(shown, expected);
  }
}

}  // namespace
}  // namespace sinew
