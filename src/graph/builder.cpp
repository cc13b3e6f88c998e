#include "graph/builder.h"

#include <algorithm>

#include "base/assert.h"

namespace sinew {
namespace {

// Nodes of the largest layer of any family, with room, without those of each expert that a token
// goes to: its view, its place in the sum, and with biases the same again.
constexpr std::size_t kNodesPerLayer = 160;
constexpr std::size_t kNodesPerExpert = 4;
constexpr std::size_t kNodesFixed = 128;
// Places in a layer of any family where ranks agree.
constexpr std::size_t kCutsPerLayer = 3;

std::size_t nodes_per_layer(const ModelSpec& spec) {
  return kNodesPerLayer + kNodesPerExpert * static_cast<std::size_t>(spec.experts.used);
}

}  // namespace

std::size_t graph_node_capacity(const ModelSpec& spec) {
  return static_cast<std::size_t>(spec.layers) * nodes_per_layer(spec) + kNodesFixed;
}

std::int64_t padded_cells(std::int64_t length, std::int64_t context) {
  return std::min(context, (length + kCellsPadding - 1) / kCellsPadding * kCellsPadding);
}

GraphBuilder::GraphBuilder(const RankModel& model, StepGraph& step)
    : model_(model), step_(step), context_(step.tensors_.get()) {
  graph_ = ggml_new_graph_custom(context_, graph_node_capacity(model.spec), false);
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
  const Stage& stage = model_.plan.stage(model_.rank);
  if (stage.first == 0) {
    inputs.tokens = input(GGML_TYPE_I32, shape.tokens, 1, "tokens");
    if (stage.ranks > 1) inputs.token_held = input(GGML_TYPE_F32, 1, shape.tokens, "token_held");
  } else {
    inputs.hidden = input(GGML_TYPE_F32, spec().embedding, shape.tokens, "hidden_in");
  }
  inputs.positions = input(GGML_TYPE_I32, shape.tokens, 1, "positions");
  inputs.rows = input(GGML_TYPE_I32, shape.rows, 1, "rows");
  const auto divisors = [&](const RopeSpec& rope, const char* name) {
    const auto count = static_cast<std::int64_t>(rope.divisors.size());
    return count == 0 ? nullptr : input(GGML_TYPE_F32, count, 1, name);
  };
  inputs.rope_divisors = divisors(spec().rope, "rope_divisors");
  if (spec().window.size > 0)
    inputs.window_rope_divisors = divisors(spec().window.rope, "window_rope_divisors");
  if (shape.trace != Trace::kOff)
    inputs.sketch = input(GGML_TYPE_F32, spec().embedding, kSketchRows, "sketch");
  if (shape.trace == Trace::kNoisy)
    inputs.noise = input(
        GGML_TYPE_F32, spec().embedding + std::int64_t{kNoisePlacesPerLayer} * (spec().layers + 1),
        1, "noise");
  if (heads() > 0) {
    inputs.cache_rows = input(GGML_TYPE_I64, shape.tokens, 1, "cache_rows");
    inputs.mask = input(GGML_TYPE_F16, shape.cells, shape.tokens, "mask");
    if (spec().window.size > 0)
      inputs.window_mask = input(GGML_TYPE_F16, shape.cells, shape.tokens, "window_mask");
  }
  if (model_.plan.whole_experts) {
    inputs.expert_held = input(GGML_TYPE_F32, 1, spec().experts.count, "expert_held");
    inputs.expert_place = input(GGML_TYPE_I32, 1, spec().experts.count, "expert_place");
  }
}

std::vector<LayerPlace> GraphBuilder::layers() const {
  const IndexRange range = model_.plan.stage(model_.rank).layers;
  std::vector<LayerPlace> places;
  for (auto layer = static_cast<int>(range.begin); layer < range.end; ++layer)
    places.push_back({layer, fmt::format("blk.{}.", layer), layer == spec().layers - 1});
  return places;
}

ggml_tensor* GraphBuilder::norm(ggml_tensor* input, const std::string& name) const {
  return ggml_mul(context_, ggml_rms_norm(context_, input, spec().rms_epsilon),
                  weight(name + ".weight"));
}

ggml_tensor* GraphBuilder::project(const std::string& name, ggml_tensor* input) const {
  ggml_tensor* matrix = weight(name + ".weight");
  if (matrix == nullptr || input == nullptr) return nullptr;
  ggml_tensor* bias = weight(name + ".bias");
  ggml_tensor* product = ggml_mul_mat(context_, matrix, input);
  return bias == nullptr ? product : ggml_add(context_, product, bias);
}

ggml_tensor* GraphBuilder::add(ggml_tensor* a, ggml_tensor* b) const {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  return ggml_add(context_, a, b);
}

ggml_tensor* GraphBuilder::activate(ggml_tensor* gate, ggml_tensor* up) const {
  // The constants of gpt-oss (its reference implementation, torch/model.py, `swiglu`).
  constexpr float kAlpha = 1.702F;
  constexpr float kLimit = 7.0F;
  switch (spec().activation) {
    case Activation::kSwiglu:
      return ggml_swiglu_split(context_, gate, up);
    case Activation::kGeglu:
      return ggml_geglu_split(context_, gate, up);
    case Activation::kClampedSwiglu:
      return ggml_swiglu_oai(context_, gate, up, kAlpha, kLimit);
  }
  return nullptr;
}

ggml_tensor* GraphBuilder::feed_forward(ggml_tensor* input, const LayerPlace& at,
                                        const std::string& suffix) const {
  ggml_tensor* gate = project(at.blk + "ffn_gate" + suffix, input);
  ggml_tensor* up = project(at.blk + "ffn_up" + suffix, input);
  if (gate == nullptr) return nullptr;
  return ggml_mul_mat(context_, weight(at.blk + "ffn_down" + suffix + ".weight"),
                      activate(gate, up));
}

ggml_tensor* GraphBuilder::rope(ggml_tensor* input, const RopeSpec& rope,
                                ggml_tensor* divisors) const {
  if (divisors == nullptr) divisors = weight("rope_freqs.weight");
  return ggml_rope_ext(context_, input, step_.inputs_.positions, divisors, rope.dimensions,
                       rope.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL,
                       rope.original_context, rope.base, rope.scale, rope.extrapolation,
                       rope.attention_factor, rope.beta_fast, rope.beta_slow);
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

ggml_tensor* GraphBuilder::attend(ggml_tensor* query, ggml_tensor* keys, ggml_tensor* values,
                                  const LayerPlace& at, ggml_tensor* sinks,
                                  ggml_tensor* mask) const {
  const StepInputs& inputs = step_.inputs_;
  if (mask == nullptr) mask = spec().windowed(at.layer) ? inputs.window_mask : inputs.mask;
  ggml_tensor* by_head = ggml_permute(context_, query, 0, 2, 1, 3);
  ggml_tensor* result = ggml_flash_attn_ext(context_, by_head, keys, values, mask,
                                            spec().attention_scale, 0.0F, 0.0F);
  if (sinks != nullptr) ggml_flash_attn_ext_add_sinks(result, sinks);
  ggml_prec_set_acc(result, GGML_PREC_F32);
  return result;
}

ggml_tensor* GraphBuilder::wanted(ggml_tensor* input, const LayerPlace& at) const {
  if (input == nullptr || !at.last || step_.shape_.rows == step_.shape_.tokens) return input;
  return ggml_get_rows(context_, input, step_.inputs_.rows);
}

ggml_tensor* GraphBuilder::agree(ggml_tensor* partial, std::int64_t elements, std::int64_t tokens) {
  if (stage_ranks() == 1) {
    SINEW_ASSERT(partial != nullptr);
    return partial;
  }
  const bool holds_nothing = partial == nullptr;
  if (holds_nothing) partial = input(GGML_TYPE_F32, elements, tokens, "nothing");
  SINEW_ASSERT(partial->type == GGML_TYPE_F32 && ggml_is_contiguous(partial) &&
               ggml_nelements(partial) == elements * tokens);
  expand(partial);
  cuts_.push_back({ggml_graph_n_nodes(graph_), partial, holds_nothing});
  return partial;
}

ggml_tensor* GraphBuilder::agree(ggml_tensor* partial, const LayerPlace& at,
                                 const std::string& bias) {
  const std::int64_t tokens = at.last ? step_.shape_.rows : step_.shape_.tokens;
  ggml_tensor* sum = agree(partial, spec().embedding, tokens);
  ggml_tensor* addend = bias.empty() ? nullptr : weight(bias + ".bias");
  return observe(addend == nullptr ? sum : ggml_add(context_, sum, addend), at.layer);
}

ggml_tensor* GraphBuilder::observe(ggml_tensor* sum, int layer) {
  const StepInputs& inputs = step_.inputs_;
  if (inputs.sketch == nullptr) return sum;
  if (layer != next_place_.layer) next_place_ = {layer, 0};
  const TracePlace place = next_place_;
  ++next_place_.part;
  // Embeddings are looked up, not computed: ranks agree about them exactly.
  if (inputs.noise != nullptr && layer != kEmbeddingLayer) {
    const int stretch =
        layer * kNoisePlacesPerLayer + std::min(place.part, kNoisePlacesPerLayer - 1);
    sum = ggml_mul(context_, sum,
                   ggml_view_1d(context_, inputs.noise, spec().embedding,
                                static_cast<std::size_t>(stretch) * sizeof(float)));
  }
  if (model_.rank != model_.plan.stage(model_.rank).first) return sum;
  ggml_tensor* sketch = ggml_mul_mat(context_, inputs.sketch, sum);
  ggml_set_name(sketch, "trace");
  ggml_set_output(sketch);
  expand(sketch);
  step_.traced_.push_back({place, sketch});
  return sum;
}

ggml_tensor* GraphBuilder::embed() {
  ggml_tensor* table = weight("token_embd.weight");
  const StepInputs& inputs = step_.inputs_;
  const std::int64_t tokens = step_.shape_.tokens;
  ggml_tensor* rows = nullptr;
  if (table != nullptr) {
    rows = ggml_get_rows(context_, table, inputs.tokens);
    if (inputs.token_held != nullptr) rows = ggml_mul(context_, rows, inputs.token_held);
  }
  ggml_tensor* embedded = agree(rows, spec().embedding, tokens);
  if (spec().embedding_scale != 1.0F)
    embedded = ggml_scale(context_, embedded, spec().embedding_scale);
  return observe(embedded, kEmbeddingLayer);
}

ggml_tensor* GraphBuilder::begin() {
  return step_.inputs_.hidden != nullptr ? step_.inputs_.hidden : embed();
}

void GraphBuilder::finish(ggml_tensor* hidden) {
  const Stage& stage = model_.plan.stage(model_.rank);
  const bool ends_model = stage.layers.end == spec().layers;
  step_.hidden_ = ends_model ? observe(norm(hidden, "output_norm"), spec().layers) : hidden;
  ggml_set_name(step_.hidden_, "hidden");
  ggml_set_output(step_.hidden_);
  expand(step_.hidden_);
  if (!ends_model || !step_.shape_.logits) return;
  ggml_tensor* logits = project("output", step_.hidden_);
  if (logits == nullptr) return;
  if (spec().logit_cap != 0.0F) {
    logits = ggml_tanh(context_, ggml_scale(context_, logits, 1.0F / spec().logit_cap));
    logits = ggml_scale(context_, logits, spec().logit_cap);
  }
  step_.logits_ = logits;
  ggml_set_name(step_.logits_, "logits");
  ggml_set_output(step_.logits_);
  expand(step_.logits_);
}

namespace {

void forward(GraphBuilder& g) {
  switch (g.spec().family) {
    case Family::kLlama:
      return forward_llama(g);
    case Family::kQwen2:
      return forward_qwen2(g);
    case Family::kQwen3:
      return forward_qwen3(g);
    case Family::kGlm4Moe:
      return forward_glm4moe(g);
    case Family::kGptOss:
      return forward_gpt_oss(g);
    case Family::kMiniMax:
      return forward_minimax(g);
    case Family::kGemma3:
      return forward_gemma3(g);
    case Family::kDeepseek2:
      return forward_deepseek2(g);
    case Family::kDeepseek32:
      return forward_deepseek32(g);
  }
}

}  // namespace

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
  const std::size_t nodes = graph_node_capacity(model.spec);
  // The whole graph, its segments (together as many nodes, each with its own fixed part), and the
  // tensors.
  const std::size_t segments = static_cast<std::size_t>(model.spec.layers) * kCutsPerLayer + 4;
  const std::size_t bytes =
      2 * ggml_graph_overhead_custom(nodes, false) +
      segments * ggml_graph_overhead_custom(nodes_per_layer(model.spec), false) +
      nodes * ggml_tensor_overhead();
  step->tensors_.reset(ggml_init({bytes, nullptr, true}));
  if (step->tensors_ == nullptr)
    return fail(ErrorCode::kNoMemory, "no memory for a graph of {} nodes", nodes);
  GraphBuilder builder(model, *step);
  forward(builder);
  SINEW_TRY(builder.cut_segments());
  if (!ggml_gallocr_alloc_graph(allocator, builder.graph_))
    return fail(ErrorCode::kNoMemory,
                "the activations of {} tokens do not fit the memory of {}; lower --chunk or --ctx",
                shape.tokens, model.device.name());
  return step;
}

}  // namespace sinew
