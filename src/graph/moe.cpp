#include "graph/moe.h"

#include <cmath>

namespace sinew {
namespace {

// The smallest normal f16: keeps the sum of weights from being zero.
constexpr float kWeightSumMin = 6.103515625e-5F;
constexpr int kBestOfGroup = 2;  // experts whose sum scores a group

// Scores with everything outside the best groups at -infinity. [experts, tokens]
ggml_tensor* keep_best_groups(ggml_context* ctx, ggml_tensor* scores, const ExpertSpec& experts,
                              std::int64_t tokens) {
  const std::int64_t size = experts.count / experts.groups;
  ggml_tensor* groups = ggml_reshape_3d(ctx, scores, size, experts.groups, tokens);
  ggml_tensor* best = ggml_argsort_top_k(ctx, groups, kBestOfGroup);
  ggml_tensor* best_scores =
      ggml_get_rows(ctx, ggml_reshape_4d(ctx, groups, 1, size, experts.groups, tokens), best);
  ggml_tensor* group_scores =
      ggml_sum_rows(ctx, ggml_reshape_3d(ctx, best_scores, kBestOfGroup, experts.groups, tokens));
  ggml_tensor* chosen = ggml_argsort_top_k(
      ctx, ggml_reshape_2d(ctx, group_scores, experts.groups, tokens), experts.groups_used);
  ggml_tensor* kept = ggml_get_rows(ctx, groups, chosen);
  ggml_tensor* masked = ggml_set_rows(ctx, ggml_fill(ctx, groups, -INFINITY), kept, chosen);
  return ggml_reshape_2d(ctx, masked, experts.count, tokens);
}

struct Routing {
  ggml_tensor* experts;  // I32 [used, tokens]
  ggml_tensor* weights;  // F32 [1, used, tokens]
};

Routing route(GraphBuilder& g, ggml_tensor* x, const std::string& prefix) {
  ggml_context* ctx = g.context();
  const ExpertSpec& experts = g.spec().experts;
  const std::int64_t tokens = x->ne[1];
  ggml_tensor* logits = g.project(prefix + "ffn_gate_inp.weight", x);
  ggml_tensor* scores = experts.gating == ExpertSpec::Gating::kSigmoid ? ggml_sigmoid(ctx, logits)
                                                                       : ggml_soft_max(ctx, logits);

  // The correction bias takes part in the choice, not in the weights.
  ggml_tensor* choice = scores;
  if (ggml_tensor* bias = g.weight(prefix + "exp_probs_b.bias"))
    choice = ggml_add(ctx, scores, bias);
  if (experts.groups > 1) choice = keep_best_groups(ctx, choice, experts, tokens);
  ggml_tensor* chosen = ggml_argsort_top_k(ctx, choice, experts.used);

  ggml_tensor* weights =
      ggml_get_rows(ctx, ggml_reshape_3d(ctx, scores, 1, experts.count, tokens), chosen);
  if (experts.normalise) {
    weights = ggml_reshape_2d(ctx, weights, experts.used, tokens);
    ggml_tensor* sum = ggml_clamp(ctx, ggml_sum_rows(ctx, weights), kWeightSumMin, INFINITY);
    weights = ggml_reshape_3d(ctx, ggml_div(ctx, weights, sum), 1, experts.used, tokens);
  }
  if (experts.scale != 1.0F) weights = ggml_scale(ctx, weights, experts.scale);
  g.expand(weights);
  return {chosen, weights};
}

}  // namespace

ggml_tensor* mixture_of_experts(GraphBuilder& g, ggml_tensor* x, const std::string& prefix) {
  ggml_tensor* gate_matrix = g.weight(prefix + "ffn_gate_exps.weight");
  if (gate_matrix == nullptr) return nullptr;
  ggml_context* ctx = g.context();
  const std::int64_t embedding = x->ne[0];
  const std::int64_t tokens = x->ne[1];
  const Routing routing = route(g, x, prefix);

  ggml_tensor* input = ggml_reshape_3d(ctx, x, embedding, 1, tokens);
  ggml_tensor* up =
      ggml_mul_mat_id(ctx, g.weight(prefix + "ffn_up_exps.weight"), input, routing.experts);
  ggml_tensor* gate = ggml_mul_mat_id(ctx, gate_matrix, input, routing.experts);
  ggml_tensor* down = ggml_mul_mat_id(ctx, g.weight(prefix + "ffn_down_exps.weight"),
                                      ggml_swiglu_split(ctx, gate, up), routing.experts);
  ggml_tensor* weighted = ggml_mul(ctx, down, routing.weights);  // [embedding, used, tokens]
  g.expand(weighted);

  // Added one after another, so that the order of the sum does not depend on the device.
  const std::size_t token_stride = weighted->nb[2];
  ggml_tensor* sum = nullptr;
  for (std::int64_t i = 0; i < g.spec().experts.used; ++i) {
    ggml_tensor* one = ggml_view_2d(ctx, weighted, embedding, tokens, token_stride,
                                    static_cast<std::size_t>(i) * weighted->nb[1]);
    sum = sum == nullptr ? one : ggml_add(ctx, sum, one);
  }
  return g.spec().experts.used == 1 ? ggml_cont(ctx, sum) : sum;
}

}  // namespace sinew
