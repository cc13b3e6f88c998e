#include "graph/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace sinew {
namespace {

using Gating = ExpertSpec::Gating;

// Which experts are left of `scores` ([experts] of one token after another), as ggml computes it.
std::vector<bool> kept_by_graph(const ExpertSpec& experts, const std::vector<float>& scores) {
  auto device = Device::open("CPU", 1);
  if (!device) return {};
  const ggml_context_ptr context(
      ggml_init({ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true}));
  const auto tokens = static_cast<std::int64_t>(scores.size()) / experts.count;
  ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, experts.count, tokens);
  ggml_tensor* result = keep_best_groups(context.get(), input, experts);
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, result);
  const ggml_backend_buffer_ptr buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(context.get(), (*device)->default_buffers()));
  if (buffer == nullptr) return {};
  ggml_backend_tensor_set(input, scores.data(), 0, ggml_nbytes(input));
  if (ggml_backend_graph_compute((*device)->backend(), graph) != GGML_STATUS_SUCCESS) return {};
  std::vector<float> values(scores.size());
  ggml_backend_tensor_get(result, values.data(), 0, ggml_nbytes(result));
  std::vector<bool> kept;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != -INFINITY) {
      EXPECT_EQ(values[i], scores[i]) << i;
    }
    kept.push_back(values[i] != -INFINITY);
  }
  return kept;
}

// The same, as the papers say it: groups in the order of the sum of their best experts.
std::vector<bool> kept_by_formula(const ExpertSpec& experts, const std::vector<float>& scores,
                                  std::ptrdiff_t best) {
  const auto count = static_cast<std::ptrdiff_t>(experts.count);
  const std::ptrdiff_t size = count / experts.groups;
  std::vector<bool> kept(scores.size());
  for (auto token = scores.begin(); token != scores.end(); token += count) {
    std::vector<std::pair<float, std::ptrdiff_t>> order;
    for (std::ptrdiff_t group = 0; group < experts.groups; ++group) {
      std::vector<float> members(token + group * size, token + (group + 1) * size);
      std::sort(members.rbegin(), members.rend());
      order.emplace_back(-std::accumulate(members.begin(), members.begin() + best, 0.0F), group);
    }
    std::sort(order.begin(), order.end());
    order.resize(static_cast<std::size_t>(experts.groups_used));
    for (const auto& [score, group] : order)
      std::fill_n(kept.begin() + (token - scores.begin()) + group * size, size, true);
  }
  return kept;
}

ExpertSpec grouped(Gating gating) {
  ExpertSpec experts;
  experts.count = 12;
  experts.used = 2;
  experts.groups = 4;
  experts.groups_used = 2;
  experts.gating = gating;
  return experts;
}

// The first two groups have the best expert each, the last two the best pair.
TEST(KeepBestGroups, SoftmaxGoesByTheBestExpertAndSigmoidByTheBestTwo) {
  const std::vector<float> scores{0.30F, 0.01F, 0.00F, 0.01F, 0.28F, 0.02F,
                                  0.20F, 0.19F, 0.00F, 0.00F, 0.18F, 0.17F};
  std::vector<bool> first(12), last(12);
  std::fill_n(first.begin(), 6, true);
  std::fill_n(last.begin() + 6, 6, true);
  EXPECT_EQ(kept_by_graph(grouped(Gating::kSoftmax), scores), first);
  EXPECT_EQ(kept_by_graph(grouped(Gating::kSigmoid), scores), last);
}

TEST(KeepBestGroups, EveryTokenHasItsOwn) {
  constexpr std::size_t kTokens = 100;
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform;
  std::vector<float> scores(12 * kTokens);
  for (float& score : scores) score = uniform(random);
  const ExpertSpec softmax = grouped(Gating::kSoftmax);
  const ExpertSpec sigmoid = grouped(Gating::kSigmoid);
  const std::vector<bool> by_one = kept_by_formula(softmax, scores, 1);
  const std::vector<bool> by_two = kept_by_formula(sigmoid, scores, 2);
  ASSERT_NE(by_one, by_two);
  EXPECT_EQ(kept_by_graph(softmax, scores), by_one);
  EXPECT_EQ(kept_by_graph(sigmoid, scores), by_two);
}

}  // namespace
}  // namespace sinew
