#pragma once

#include <ggml.h>

#include <string>
#include <vector>

#include "graph/step_graph.h"

namespace sinew {

// One layer of a forward pass.
struct LayerPlace {
  int layer = 0;
  std::string blk;    // "blk.3."
  bool last = false;  // of the model: from its attention on only the wanted tokens are computed
};

// The vocabulary in which forward passes are written. Ranks are hidden here: a projection uses
// whatever slice this rank holds, and `agree` turns the ranks' partial sums into the sum.
//
// A null tensor stands for "this rank holds nothing of it" and passes through the operators.
class GraphBuilder {
 public:
  GraphBuilder(const RankModel& model, StepGraph& step);

  const ModelSpec& spec() const { return model_.spec; }
  ggml_context* context() const { return context_; }
  const StepInputs& inputs() const { return step_.inputs_; }
  const StepShape& shape() const { return step_.shape_; }
  const KvCache& cache() const { return model_.cache; }
  const Device& device() const { return model_.device; }
  // Heads (key-value groups) that this rank holds.
  std::int64_t heads() const { return model_.plan.range(model_.rank, Dimension::kHeads).size(); }
  // Ranks that agree with this one: those of its stage.
  int stage_ranks() const { return model_.plan.stage(model_.rank).ranks; }

  // The hidden state that this rank's layers begin with, [embedding, tokens]: token embeddings, or
  // what the stage before has passed on.
  ggml_tensor* begin();
  // The layers of this rank's stage, in order.
  std::vector<LayerPlace> layers() const;
  // Final norm and this rank's rows of the output layer, or the hidden state for the next stage;
  // ends the graph.
  void finish(ggml_tensor* hidden);

  ggml_tensor* weight(const std::string& name) const { return model_.weights.find(name); }
  // Root-mean-square norm over the elements of each token or head, times the weight
  // "<name>.weight".
  ggml_tensor* norm(ggml_tensor* input, const std::string& name) const;
  // input x "<name>.weight" + "<name>.bias", if there is one; null if this rank holds nothing of
  // the weight. Not for biases of partial sums, see `agree`.
  ggml_tensor* project(const std::string& name, ggml_tensor* input) const;
  // Sum that skips parts this rank does not hold.
  ggml_tensor* add(ggml_tensor* a, ggml_tensor* b) const;
  // The activation of the model, over the two branches of a gated feed-forward.
  ggml_tensor* activate(ggml_tensor* gate, ggml_tensor* up) const;
  // "ffn_down"(activation("ffn_gate", "ffn_up")) of the layer, names ending in `suffix`: a partial
  // sum over the columns held.
  ggml_tensor* feed_forward(ggml_tensor* input, const LayerPlace& at,
                            const std::string& suffix = "") const;
  // Rotates the first or only `rope.dimensions` elements of each head: [dimensions, heads, tokens].
  ggml_tensor* rope(ggml_tensor* input, const LayerPlace& at) const {
    return rope(input, spec().rope_of(at.layer),
                spec().windowed(at.layer) ? inputs().window_rope_divisors : inputs().rope_divisors);
  }
  // `divisors`: null for those of the file, if it has any.
  ggml_tensor* rope(ggml_tensor* input, const RopeSpec& rope,
                    ggml_tensor* divisors = nullptr) const;
  // Appends this step's rows ([elements, tokens]) to a cache and shows the slot's cells as
  // [elements of a head, cells, heads]; `elements` of each head from `offset` on.
  void write_cache(ggml_tensor* cache, ggml_tensor* rows);
  ggml_tensor* read_cache(ggml_tensor* cache, std::int64_t elements, std::int64_t heads) const;
  // softmax(query x keys x scale + mask) x values: [value elements, heads, tokens]. `sinks`, if
  // there are any: a logit of each head. `mask`: null for that of all tokens the layer looks back
  // at.
  ggml_tensor* attend(ggml_tensor* query, ggml_tensor* keys, ggml_tensor* values,
                      const LayerPlace& at, ggml_tensor* sinks = nullptr,
                      ggml_tensor* mask = nullptr) const;
  // In the last layer only the tokens whose result is wanted, elsewhere all.
  ggml_tensor* wanted(ggml_tensor* input, const LayerPlace& at) const;

  // Where ranks agree: `partial` (null: this rank has no part) becomes the sum over the ranks of
  // the stage, [elements, tokens].
  ggml_tensor* agree(ggml_tensor* partial, std::int64_t elements, std::int64_t tokens);
  // The same for what a part of a layer gives, [embedding, wanted tokens], plus "<bias>.bias" if
  // there is one.
  ggml_tensor* agree(ggml_tensor* partial, const LayerPlace& at, const std::string& bias = "");
  // Puts everything that `tensor` needs into the graph now, in this order.
  void expand(ggml_tensor* tensor) { ggml_build_forward_expand(graph_, tensor); }

 private:
  friend class StepGraph;
  ggml_tensor* input(ggml_type type, std::int64_t elements, std::int64_t rows,
                     const char* name) const;
  void make_inputs();
  ggml_tensor* embed();
  // Adds `sum`, equal on all ranks of the stage, to the trace, with noise on it if that is asked
  // for. Returns what the pass goes on with.
  ggml_tensor* observe(ggml_tensor* sum, int layer);
  Status cut_segments();

  const RankModel& model_;
  StepGraph& step_;
  ggml_context* context_;
  ggml_cgraph* graph_ = nullptr;
  struct Cut {
    int node_end;  // nodes before this one belong to the segment
    ggml_tensor* partial_sum;
    bool holds_nothing;
  };
  std::vector<Cut> cuts_;
  TracePlace next_place_{kEmbeddingLayer, 0};
};

// Forward passes, one file per family; each reads like the model's diagram.
void forward_llama(GraphBuilder& g);
void forward_qwen2(GraphBuilder& g);
void forward_qwen3(GraphBuilder& g);
void forward_glm4moe(GraphBuilder& g);
void forward_gpt_oss(GraphBuilder& g);
void forward_minimax(GraphBuilder& g);
void forward_gemma3(GraphBuilder& g);
void forward_deepseek2(GraphBuilder& g);
void forward_deepseek32(GraphBuilder& g);

}  // namespace sinew
