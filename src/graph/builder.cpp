#include "graph/builder.h"

#include "base/assert.h"

namespace sinew {
namespace {

// Nodes of the largest layer of any family, with room; ggml stops the process if a graph is too
// small.
constexpr std::size_t kNodesPerLayer = 160;
constexpr std::size_t kNodesFixed = 128;

std::size_t node_capacity(const ModelSpec& spec) {
  return static_cast<std::size_t>(spec.layers) * kNodesPerLayer + kNodesFixed;
}

}  // namespace

std::int64_t padded_cells(std::int64_t length, std::int64_t context) {
  return std::min(context, (length + kCellsPadding - 1) / kCellsPadding * kCellsPadding);
}

GraphBuilder::GraphBuilder(const RankModel& model, StepGraph& step)
    : model_(model), step_(step), context_(step.tensors_.get()) {
  graph_ = ggml_new_graph_custom(context_, node_capacity(model.spec), false);
  make_inputs();
}

ggml_tensor* GraphBuilder::input(ggml_type type, std::int64_t elements, std::int64_t rows,
                                 const char* name) const {
  ggml_tensor* tensor = ggml_new_tensor_2d(context_, type, elements, rows);
  ggml_set_name(tensor, name);
  ggml_set_input(tensor);
  return tensor;
}

void GraphBuilder::make_inputs() {
  const StepShape& shape = step_.shape_;
  StepInputs& inputs = step_.inputs_;
  inputs.tokens = input(GGML_TYPE_I32, shape.tokens, 1, "tokens");
  inputs.positions = input(GGML_TYPE_I32, shape.tokens, 1, "positions");
  inputs.rows = input(GGML_TYPE_I32, shape.rows, 1, "rows");
  if (model_.plan.ranks > 1)
    inputs.token_held = input(GGML_TYPE_F32, 1, shape.tokens, "token_held");
  if (heads() > 0) {
    inputs.cache_rows = input(GGML_TYPE_I64, shape.tokens, 1, "cache_rows");
    inputs.mask = input(GGML_TYPE_F16, shape.cells, shape.tokens, "mask");
  }
}

ggml_tensor* GraphBuilder::norm(ggml_tensor* input, const std::string& name) const {
  return ggml_mul(context_, ggml_rms_norm(context_, input, spec().rms_epsilon), weight(name));
}

ggml_tensor* GraphBuilder::project(const std::string& name, ggml_tensor* input) const {
  ggml_tensor* matrix = weight(name);
  if (matrix == nullptr || input == nullptr) return nullptr;
  return ggml_mul_mat(context_, matrix, input);
}

ggml_tensor* GraphBuilder::add(ggml_tensor* a, ggml_tensor* b) const {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  return ggml_add(context_, a, b);
}

ggml_tensor* GraphBuilder::feed_forward(ggml_tensor* input, const std::string& prefix,
                                        const std::string& suffix) const {
  ggml_tensor* gate = project(prefix + "gate" + suffix + ".weight", input);
  ggml_tensor* up = project(prefix + "up" + suffix + ".weight", input);
  if (gate == nullptr) return nullptr;
  return project(prefix + "down" + suffix + ".weight", ggml_swiglu_split(context_, gate, up));
}

ggml_tensor* GraphBuilder::rope(ggml_tensor* input, ggml_tensor* frequency_factors) const {
  const RopeSpec& rope = spec().rope;
  return ggml_rope_ext(context_, input, step_.inputs_.positions, frequency_factors, rope.dimensions,
                       GGML_ROPE_TYPE_NORMAL, rope.original_context, rope.base, rope.scale,
                       rope.extrapolation, rope.attention_factor, rope.beta_fast, rope.beta_slow);
}

void GraphBuilder::write_cache(ggml_tensor* cache, ggml_tensor* rows) {
  expand(ggml_set_rows(context_, cache, rows, step_.inputs_.cache_rows));
}

ggml_tensor* GraphBuilder::read_cache(ggml_tensor* cache, std::int64_t elements,
                                      std::int64_t heads) const {
  const std::size_t row = cache->nb[1];
  const std::size_t first =
      static_cast<std::size_t>(step_.shape_.slot * model_.cache.context()) * row;
  return ggml_view_3d(context_, cache, elements, step_.shape_.cells, heads, row,
                      ggml_row_size(cache->type, elements), first);
}

ggml_tensor* GraphBuilder::attend(ggml_tensor* query, ggml_tensor* keys,
                                  ggml_tensor* values) const {
  ggml_tensor* by_head = ggml_permute(context_, query, 0, 2, 1, 3);
  ggml_tensor* result = ggml_flash_attn_ext(context_, by_head, keys, values, step_.inputs_.mask,
                                            spec().attention_scale, 0.0F, 0.0F);
  ggml_prec_set_acc(result, GGML_PREC_F32);
  return result;
}

ggml_tensor* GraphBuilder::wanted_rows(ggml_tensor* input) const {
  if (input == nullptr || step_.shape_.rows == step_.shape_.tokens) return input;
  return ggml_get_rows(context_, input, step_.inputs_.rows);
}

ggml_tensor* GraphBuilder::agree(ggml_tensor* partial, std::int64_t tokens) {
  if (model_.plan.ranks == 1) {
    SINEW_ASSERT(partial != nullptr);
    return partial;
  }
  const bool holds_nothing = partial == nullptr;
  if (holds_nothing) partial = input(GGML_TYPE_F32, spec().embedding, tokens, "nothing");
  SINEW_ASSERT(partial->type == GGML_TYPE_F32 && ggml_is_contiguous(partial) &&
               ggml_nelements(partial) == spec().embedding * tokens);
  expand(partial);
  cuts_.push_back({ggml_graph_n_nodes(graph_), partial, holds_nothing});
  return partial;
}

ggml_tensor* GraphBuilder::embed() {
  ggml_tensor* table = weight("token_embd.weight");
  const StepInputs& inputs = step_.inputs_;
  if (table == nullptr) return agree(nullptr, step_.shape_.tokens);
  ggml_tensor* rows = ggml_get_rows(context_, table, inputs.tokens);
  return agree(inputs.token_held == nullptr ? rows : ggml_mul(context_, rows, inputs.token_held),
               step_.shape_.tokens);
}

void GraphBuilder::finish(ggml_tensor* hidden) {
  step_.hidden_ = norm(hidden, "output_norm.weight");
  ggml_set_name(step_.hidden_, "hidden");
  ggml_set_output(step_.hidden_);
  expand(step_.hidden_);
  if (!step_.shape_.logits) return;
  step_.logits_ =
      project(spec().tied_output ? "token_embd.weight" : "output.weight", step_.hidden_);
  if (step_.logits_ == nullptr) return;
  ggml_set_name(step_.logits_, "logits");
  ggml_set_output(step_.logits_);
  expand(step_.logits_);
}

Status GraphBuilder::cut_segments() {
  for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph_, i);
    if (!model_.device.supports(node))
      return fail(ErrorCode::kUnsupported,
                  "device {} cannot compute {} (node '{}'); use --device CPU", model_.device.name(),
                  ggml_op_desc(node), node->name);
  }
  if (cuts_.empty()) {
    step_.segments_.push_back({graph_, nullptr, false});
    return {};
  }
  cuts_.push_back({ggml_graph_n_nodes(graph_), nullptr, false});
  int begin = 0;
  for (const Cut& cut : cuts_) {
    Segment segment{
        ggml_new_graph_custom(context_, static_cast<std::size_t>(std::max(1, cut.node_end - begin)),
                              false),
        cut.partial_sum, cut.holds_nothing};
    for (int i = begin; i < cut.node_end; ++i)
      ggml_graph_add_node(segment.graph, ggml_graph_node(graph_, i));
    step_.segments_.push_back(segment);
    begin = cut.node_end;
  }
  return {};
}

Result<std::unique_ptr<StepGraph>> StepGraph::build(const RankModel& model, const StepShape& shape,
                                                    ggml_gallocr_t allocator) {
  auto step = std::make_unique<StepGraph>();
  step->shape_ = shape;
  const std::size_t nodes = node_capacity(model.spec);
  // The whole graph, its segments (together as many nodes, each with its own fixed part), and the
  // tensors.
  const std::size_t segments = static_cast<std::size_t>(model.spec.layers) * 2 + 4;
  const std::size_t bytes = 2 * ggml_graph_overhead_custom(nodes, false) +
                            segments * ggml_graph_overhead_custom(kNodesPerLayer, false) +
                            nodes * ggml_tensor_overhead();
  step->tensors_.reset(ggml_init({bytes, nullptr, true}));
  if (step->tensors_ == nullptr)
    return fail(ErrorCode::kNoMemory, "no memory for a graph of {} nodes", nodes);
  GraphBuilder builder(model, *step);
  switch (model.spec.family) {
    case Family::kLlama:
      forward_llama(builder);
      break;
    case Family::kDeepseek2:
      forward_deepseek2(builder);
      break;
  }
  SINEW_TRY(builder.cut_segments());
  if (!ggml_gallocr_alloc_graph(allocator, builder.graph_))
    return fail(ErrorCode::kNoMemory,
                "the activations of {} tokens do not fit the memory of {}; lower --chunk or --ctx",
                shape.tokens, model.device.name());
  return step;
}

}  // namespace sinew
