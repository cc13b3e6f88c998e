#pragma once

#include <ggml.h>

#include <string>
#include <vector>

#include "graph/step_graph.h"

namespace sinew {

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
  // Heads (key-value groups) that this rank holds.
  std::int64_t heads() const { return model_.plan.range(model_.rank, Dimension::kHeads).size(); }

  ggml_tensor* weight(const std::string& name) const { return model_.weights.find(name); }
  // Root-mean-square norm over the elements of each token, times the weight of that name.
  ggml_tensor* norm(ggml_tensor* input, const std::string& name) const;
  // input x weight; null if this rank holds nothing of the weight.
  ggml_tensor* project(const std::string& name, ggml_tensor* input) const;
  // Sum that skips parts this rank does not hold.
  ggml_tensor* add(ggml_tensor* a, ggml_tensor* b) const;
  // down(silu(gate(input)) * up(input)): a partial sum over the columns held.
  ggml_tensor* feed_forward(ggml_tensor* input, const std::string& prefix,
                            const std::string& suffix) const;
  // Rotates the first or only `rope.dimensions` elements of each head: [dimensions, heads, tokens].
  ggml_tensor* rope(ggml_tensor* input, ggml_tensor* frequency_factors) const;
  // Appends this step's rows ([elements, tokens]) to a cache and shows the slot's cells as
  // [elements of a head, cells, heads]; `elements` of each head from `offset` on.
  void write_cache(ggml_tensor* cache, ggml_tensor* rows);
  ggml_tensor* read_cache(ggml_tensor* cache, std::int64_t elements, std::int64_t heads) const;
  // softmax(query x keys x scale + mask) x values: [value elements, heads, tokens].
  ggml_tensor* attend(ggml_tensor* query, ggml_tensor* keys, ggml_tensor* values) const;
  // Of a per-token tensor only the tokens whose result is wanted.
  ggml_tensor* wanted_rows(ggml_tensor* input) const;

  // Where ranks agree: `partial` (null: this rank has no part) becomes the sum over ranks,
  // [embedding, tokens].
  ggml_tensor* agree(ggml_tensor* partial, std::int64_t tokens);
  // Puts everything that `tensor` needs into the graph now, in this order.
  void expand(ggml_tensor* tensor) { ggml_build_forward_expand(graph_, tensor); }

  // Token embeddings [embedding, tokens], summed over the ranks that hold the rows.
  ggml_tensor* embed();
  // Final norm and this rank's rows of the output layer; ends the graph.
  void finish(ggml_tensor* hidden);

  const KvCache& cache() const { return model_.cache; }

 private:
  friend class StepGraph;
  ggml_tensor* input(ggml_type type, std::int64_t elements, std::int64_t rows,
                     const char* name) const;
  void make_inputs();
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
};

// Forward passes, one file per family; each reads like the model's diagram.
void forward_llama(GraphBuilder& g);
void forward_deepseek2(GraphBuilder& g);

}  // namespace sinew
