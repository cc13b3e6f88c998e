#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "graph/device.h"
#include "graph/kv_cache.h"
#include "graph/trace.h"
#include "graph/weights.h"

namespace sinew {

// What a graph is built for; equal shapes share one graph.
struct StepShape {
  std::int64_t tokens = 0;  // of this step, all of one slot
  std::int64_t cells = 0;   // of the slot that are looked at, padded (see padded_cells)
  std::int64_t rows = 0;    // tokens whose last hidden state is wanted, at least one
  bool logits = false;      // whether those rows' logits are wanted as well
  int slot = 0;
  Trace trace = Trace::kOff;
  friend auto operator<=>(const StepShape&, const StepShape&) = default;
};

// Cells are looked at in steps of this many, so that a graph serves that many decode steps.
inline constexpr std::int64_t kCellsPadding = 256;
std::int64_t padded_cells(std::int64_t length, std::int64_t context);

// Nodes for which a graph of the model has room; ggml ends the process where that is too small.
std::size_t graph_node_capacity(const ModelSpec& spec);

// One rank's part of the model: everything that graphs refer to. All members outlive the graphs.
struct RankModel {
  const ModelSpec& spec;
  const Plan& plan;
  Rank rank = 0;
  const Device& device;
  const Weights& weights;
  const KvCache& cache;
};

// Tensors that are written before a step. Types are ggml's; shapes in elements, fastest first.
struct StepInputs {
  ggml_tensor* tokens =
      nullptr;  // I32 [tokens]: row of this rank's slice of the embedding, 0 if not held
  ggml_tensor* token_held =
      nullptr;  // F32 [1, tokens]: 1 where this rank holds the row, else 0; null with one rank
  ggml_tensor* positions = nullptr;  // I32 [tokens]
  // F32 [dimensions / 2]: RopeSpec::divisors of the model and of its windowed layers; null if there
  // are none.
  ggml_tensor* rope_divisors = nullptr;
  ggml_tensor* window_rope_divisors = nullptr;
  ggml_tensor* cache_rows = nullptr;   // I64 [tokens]: cell of each token; null without heads
  ggml_tensor* mask = nullptr;         // F16 [cells, tokens]: 0 or -inf; null without heads
  ggml_tensor* window_mask = nullptr;  // the same for windowed layers; null if there are none
  ggml_tensor* hidden = nullptr;  // F32 [embedding, tokens]: what the stage before passed on; null
                                  // in the first
  // With whole experts, F32 [1, experts]: 1 for those this rank holds, and I32 [1, experts]: place
  // among those, 0 if not held. Null otherwise.
  ggml_tensor* expert_held = nullptr;
  ggml_tensor* expert_place = nullptr;
  ggml_tensor* rows = nullptr;  // I32 [rows]: index of each wanted token
  // When a step is traced, F32 [embedding, kSketchRows]: signs; and with noise F32 [elements]: 1 +
  // noise, of which each place reads another stretch. Null otherwise.
  ggml_tensor* sketch = nullptr;
  ggml_tensor* noise = nullptr;
};

// Operators up to a place where ranks must agree.
struct Segment {
  ggml_cgraph* graph = nullptr;
  // After the graph has run, this tensor (F32, contiguous) holds a partial sum that must be summed
  // over ranks in place before the next segment runs. Null for the last segment.
  ggml_tensor* partial_sum = nullptr;
  // This rank adds nothing to the sum: the tensor is to be set to zero before it is summed.
  bool holds_nothing = false;
};

// F32 [kSketchRows, tokens or wanted rows].
struct TracedSum {
  TracePlace place;
  ggml_tensor* sketch = nullptr;
};

// The forward pass of one step on one rank, cut where ranks must agree. Graphs hold no state of
// their own.
class StepGraph {
 public:
  // `allocator` is shared by all graphs of a rank: they run one at a time, and only the KV cache
  // lives on.
  static Result<std::unique_ptr<StepGraph>> build(const RankModel& model, const StepShape& shape,
                                                  ggml_gallocr_t allocator);

  const StepShape& shape() const { return shape_; }
  const StepInputs& inputs() const { return inputs_; }
  const std::vector<Segment>& segments() const { return segments_; }
  // F32. In the last stage [embedding, rows]: the last normalised hidden state; in others
  // [embedding, tokens]: what is passed on to the next stage.
  ggml_tensor* hidden() const { return hidden_; }
  // F32 [vocabulary rows held, rows]; null if none are held or wanted.
  ggml_tensor* logits() const { return logits_; }
  // On the first rank of each stage, if the step is traced.
  const std::vector<TracedSum>& traced() const { return traced_; }

 private:
  friend class GraphBuilder;
  StepShape shape_;
  ggml_context_ptr tensors_;
  StepInputs inputs_;
  std::vector<Segment> segments_;
  ggml_tensor* hidden_ = nullptr;
  ggml_tensor* logits_ = nullptr;
  std::vector<TracedSum> traced_;
};

}  // namespace sinew
