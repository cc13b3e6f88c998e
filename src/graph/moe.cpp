#include "graph/moe.h"

#include <cmath>

namespace sinew {
namespace {

// The smallest normal f16: keeps the sum of weights from being zero.
constexpr float kWeightSumMin = 6.103515625e-5F;

// Experts whose sum scores a group. DeepSeek V2 has softmax scores and takes the groups of the best
// expert (arXiv:2405.04434, section 2.2.2; "group_limited_greedy" of its modeling file). V3 has
// sigmoid scores with a bias and adds the best two (arXiv:2412.19437, section 2.1.2; "noaux_tc").
int best_of_group(ExpertSpec::Gating gating) {
  switch (gating) {
    case ExpertSpec::Gating::kSoftmax:
    case ExpertSpec::Gating::kSoftmaxOfChosen:
      return 1;
    case ExpertSpec::Gating::kSigmoid:
      return 2;
  }
  return 0;
}

struct Routing {
  ggml_tensor* experts;  // I32 [used, tokens]
  ggml_tensor* weights;  // F32 [1, used, tokens]
};

ggml_tensor* scores_of(ggml_context* ctx, ggml_tensor* logits, ExpertSpec::Gating gating) {
  switch (gating) {
    case ExpertSpec::Gating::kSoftmax:
      return ggml_soft_max(ctx, logits);
    case ExpertSpec::Gating::kSigmoid:
      return ggml_sigmoid(ctx, logits);
    case ExpertSpec::Gating::kSoftmaxOfChosen:
      return logits;
  }
  return nullptr;
}

Routing route(GraphBuilder& g, ggml_tensor* x, const std::string& prefix) {
  ggml_context* ctx = g.context();
  const ExpertSpec& experts = g.spec().experts;
  const std::int64_t tokens = x->ne[1];
  ggml_tensor* scores = scores_of(ctx, g.project(prefix + "ffn_gate_inp", x), experts.gating);

  // The correction bias takes part in the choice, not in the weights.
  ggml_tensor* choice = scores;
  if (ggml_tensor* bias = g.weight(prefix + "exp_probs_b.bias"))
    choice = ggml_add(ctx, scores, bias);
  if (experts.groups > 1) choice = keep_best_groups(ctx, choice, experts);
  ggml_tensor* chosen = ggml_argsort_top_k(ctx, choice, experts.used);

  ggml_tensor* weights =
      ggml_get_rows(ctx, ggml_reshape_3d(ctx, scores, 1, experts.count, tokens), chosen);
  weights = ggml_reshape_2d(ctx, weights, experts.used, tokens);
  if (experts.gating == ExpertSpec::Gating::kSoftmaxOfChosen) weights = ggml_soft_max(ctx, weights);
  if (experts.normalise) {
    ggml_tensor* sum = ggml_clamp(ctx, ggml_sum_rows(ctx, weights), kWeightSumMin, INFINITY);
    weights = ggml_div(ctx, weights, sum);
  }
  if (experts.scale != 1.0F) weights = ggml_scale(ctx, weights, experts.scale);
  weights = ggml_reshape_3d(ctx, weights, 1, experts.used, tokens);
  g.expand(weights);
  return {chosen, weights};
}

// Where ranks hold whole experts: those that this rank does not hold are replaced by its first,
// with a weight of zero.
Routing held_only(GraphBuilder& g, const Routing& routing) {
  ggml_context* ctx = g.context();
  ggml_tensor* chosen = routing.experts;
  const std::int64_t count = chosen->ne[0] * chosen->ne[1];
  ggml_tensor* flat = ggml_reshape_1d(ctx, ggml_cont(ctx, chosen), count);
  ggml_tensor* places = ggml_reshape_2d(ctx, ggml_get_rows(ctx, g.inputs().expert_place, flat),
                                        chosen->ne[0], chosen->ne[1]);
  ggml_tensor* held = ggml_reshape_3d(ctx, ggml_get_rows(ctx, g.inputs().expert_held, flat), 1,
                                      chosen->ne[0], chosen->ne[1]);
  return {places, ggml_mul(ctx, routing.weights, held)};
}

// Sum over the chosen experts of `each`, [elements, used, tokens]; one after another, so that the
// order of the sum does not depend on the device.
ggml_tensor* sum_of_chosen(GraphBuilder& g, ggml_tensor* each) {
  ggml_context* ctx = g.context();
  g.expand(each);
  ggml_tensor* sum = nullptr;
  for (std::int64_t i = 0; i < each->ne[1]; ++i) {
    ggml_tensor* one = ggml_view_2d(ctx, each, each->ne[0], each->ne[2], each->nb[2],
                                    static_cast<std::size_t>(i) * each->nb[1]);
    sum = sum == nullptr ? one : ggml_add(ctx, sum, one);
  }
  return each->ne[1] == 1 ? ggml_cont(ctx, sum) : sum;
}

ggml_tensor* bias_of_chosen(GraphBuilder& g, const Routing& routing, const std::string& name) {
  ggml_context* ctx = g.context();
  ggml_tensor* biases = g.weight(name);
  if (biases == nullptr) return nullptr;
  const std::int64_t used = routing.experts->ne[0];
  const std::int64_t tokens = routing.experts->ne[1];
  ggml_tensor* flat = ggml_reshape_1d(ctx, ggml_cont(ctx, routing.experts), used * tokens);
  ggml_tensor* rows =
      ggml_reshape_3d(ctx, ggml_get_rows(ctx, biases, flat), biases->ne[0], used, tokens);
  return sum_of_chosen(g, ggml_mul(ctx, rows, routing.weights));
}

// input x the chosen experts' matrices, plus their biases if the file has any.
ggml_tensor* project_chosen(GraphBuilder& g, const std::string& name, ggml_tensor* input,
                            ggml_tensor* chosen) {
  ggml_context* ctx = g.context();
  ggml_tensor* product = ggml_mul_mat_id(ctx, g.weight(name + ".weight"), input, chosen);
  ggml_tensor* biases = g.weight(name + ".bias");
  return biases == nullptr ? product : ggml_add_id(ctx, product, biases, chosen);
}

}  // namespace

ggml_tensor* keep_best_groups(ggml_context* ctx, ggml_tensor* scores, const ExpertSpec& experts) {
  const std::int64_t tokens = scores->ne[1];
  const std::int64_t size = experts.count / experts.groups;
  const int best_count = best_of_group(experts.gating);
  ggml_tensor* groups = ggml_reshape_3d(ctx, scores, size, experts.groups, tokens);
  ggml_tensor* best = ggml_argsort_top_k(ctx, groups, best_count);
  ggml_tensor* best_scores =
      ggml_get_rows(ctx, ggml_reshape_4d(ctx, groups, 1, size, experts.groups, tokens), best);
  ggml_tensor* group_scores =
      ggml_sum_rows(ctx, ggml_reshape_3d(ctx, best_scores, best_count, experts.groups, tokens));
  ggml_tensor* chosen = ggml_argsort_top_k(
      ctx, ggml_reshape_2d(ctx, group_scores, experts.groups, tokens), experts.groups_used);
  ggml_tensor* kept = ggml_get_rows(ctx, groups, chosen);
  ggml_tensor* masked = ggml_set_rows(ctx, ggml_fill(ctx, groups, -INFINITY), kept, chosen);
  return ggml_reshape_2d(ctx, masked, experts.count, tokens);
}

ExpertSum mixture_of_experts(GraphBuilder& g, ggml_tensor* x, const LayerPlace& at) {
  ggml_context* ctx = g.context();
  const std::string bias = at.blk + "ffn_down_exps.bias";
  const bool holds_experts = g.weight(at.blk + "ffn_gate_exps.weight") != nullptr;
  if (!holds_experts && g.weight(bias) == nullptr) return {};
  const Routing routing = route(g, x, at.blk);
  ExpertSum sum;
  sum.bias = bias_of_chosen(g, routing, bias);
  if (!holds_experts) return sum;
  const Routing held = g.inputs().expert_held == nullptr ? routing : held_only(g, routing);

  ggml_tensor* input = ggml_reshape_3d(ctx, x, x->ne[0], 1, x->ne[1]);
  ggml_tensor* up = project_chosen(g, at.blk + "ffn_up_exps", input, held.experts);
  ggml_tensor* gate = project_chosen(g, at.blk + "ffn_gate_exps", input, held.experts);
  ggml_tensor* down = ggml_mul_mat_id(ctx, g.weight(at.blk + "ffn_down_exps.weight"),
                                      g.activate(gate, up), held.experts);
  sum.partial = sum_of_chosen(g, ggml_mul(ctx, down, held.weights));  // [embedding, tokens]
  return sum;
}

}  // namespace sinew
