#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "collective/group.h"
#include "engine/fault.h"
#include "engine/slice_hash.h"
#include "engine/step.h"
#include "graph/step_graph.h"
#include "host/model_file.h"

namespace sinew {

struct RunnerOptions {
  std::string model_path;
  Layout layout;
  Rank rank = 0;
  std::string device;  // "" for the best
  int threads = 1;
  std::int64_t context = 0;  // tokens of a slot
  int slots = 1;
  TensorType cache_type = TensorType::kF16;
  HashScope hashes = HashScope::kNone;  // what `slice_hashes` can answer
  Faults faults;                        // for tests
};

// What one place of one step showed.
struct TraceBlock {
  TracePlace place;
  std::int64_t position = 0;    // of the first token
  std::vector<float> sketches;  // kSketchRows of each token
};

// One rank's part of the model, loaded, and the execution of steps on it: graph segments on the
// device, collectives between them. All ranks run the same steps in the same order.
//
// Threads: one thread at a time.
class StepRunner {
 public:
  // `progress` is told bytes loaded and bytes in all.
  static Result<std::unique_ptr<StepRunner>> load(
      const RunnerOptions& options,
      const std::function<void(std::uint64_t, std::uint64_t)>& progress);

  // Runs one step. On rank 0: the logits of the wanted rows, [rows][vocabulary], valid until the
  // next call; elsewhere, and without wanted rows, empty. Errors of the group, kNoMemory,
  // kUnsupported; kIntegrity if ranks disagree about the last hidden state (names the rank that
  // differs from rank 0).
  Result<std::span<const float>> run(const Step& step, Group& group);

  // Of the last step, if it was traced; empty on ranks that are not the first of their stage. Calls
  // `send` for one place after another.
  void read_trace(const Step& step, const std::function<void(TraceBlock)>& send);
  // Of every slice in load order: from the device's memory as it is now or, for tensors that the
  // device has laid out anew, of what was read. Calls `send` for one after another.
  void hash_slices(const std::function<void(SliceHash)>& send) const;

  const ModelSpec& spec() const { return spec_; }
  const Plan& plan() const { return plan_; }
  std::uint64_t weight_bytes() const { return weights_.bytes(); }
  std::uint64_t cache_bytes() const { return cache_.bytes(); }
  std::string device_name() const { return device_->name(); }
  std::chrono::nanoseconds compute_time() const { return compute_time_; }
  std::int64_t context() const { return options_.context; }

 private:
  StepRunner() = default;
  Result<StepGraph*> graph_for(const StepShape& shape);
  void write_inputs(const StepGraph& graph, const Step& step);
  void write_trace_inputs(const StepInputs& inputs);
  Status load_slices(const std::function<void(std::uint64_t, std::uint64_t)>& progress);
  void write_mask(ggml_tensor* mask, const Step& step, std::int64_t window);
  void write_expert_places(const StepInputs& inputs);
  Status sum_over_ranks(const Segment& segment, Group& group, std::uint64_t step,
                        std::size_t place);
  Status receive_hidden(ggml_tensor* hidden, Group& group);
  Status pass_hidden_on(ggml_tensor* hidden, Group& group);
  Result<std::span<const float>> collect(const StepGraph& graph, Group& group);

  RunnerOptions options_;
  std::unique_ptr<ModelFile> file_;  // directory and descriptors; tensors of `bound_` point into it
  ModelSpec spec_;
  std::vector<BoundTensor> bound_;
  Plan plan_;
  std::vector<LoadItem> items_;
  std::vector<std::vector<std::uint32_t>> hashed_blocks_;   // of each item
  std::vector<std::vector<std::uint64_t>> hashes_as_read_;  // of items that cannot be read back
  std::unique_ptr<Device> device_;
  Weights weights_;
  KvCache cache_;
  std::unique_ptr<RankModel> model_;
  ggml_gallocr_ptr allocator_;
  std::uint64_t arena_bytes_ = 0;                 // of the allocator when the graphs were placed
  std::list<std::unique_ptr<StepGraph>> graphs_;  // most recently used first

  // Reused from step to step, so that decoding does not allocate.
  std::vector<std::byte> scratch_;
  std::vector<float> staging_;
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> gathered_;
  std::vector<float> logits_;
  std::chrono::nanoseconds compute_time_{0};
};

}  // namespace sinew
