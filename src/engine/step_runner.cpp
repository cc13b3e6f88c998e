#include "engine/step_runner.h"

#include <ggml.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/assert.h"
#include "base/limits.h"
#include "engine/judgement.h"
#include "engine/weight_loader.h"
#include "sample/random.h"

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;

// Graphs kept for reuse: a prompt's chunks and its decode steps alternate between few shapes.
constexpr std::size_t kGraphsMax = 8;
using StateHash = std::uint64_t;

// Inputs that a rank's graph does not use have no memory.
bool in_use(const ggml_tensor* tensor) {
  return tensor != nullptr && tensor->buffer != nullptr;
}

template <typename T>
std::span<T> typed(std::vector<std::byte>& scratch, std::size_t count) {
  if (scratch.size() < count * sizeof(T)) scratch.resize(count * sizeof(T));
  return {reinterpret_cast<T*>(scratch.data()), count};
}

template <typename T>
void write(ggml_tensor* tensor, std::span<const T> values) {
  SINEW_ASSERT(values.size_bytes() == ggml_nbytes(tensor));
  ggml_backend_tensor_set(tensor, values.data(), 0, values.size_bytes());
}

// The first rank of a stage sends the hidden state to all ranks of the next one.
RankSet hand_over(const Stage& next, Rank sender) {
  return RankSet::range(next.first, next.ranks).with(sender);
}

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::load(
    const RunnerOptions& options,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::unique_ptr<StepRunner> runner(new StepRunner);
  runner->options_ = options;
  SINEW_ASSIGN(ModelFile file, ModelFile::open(options.model_path));
  runner->file_ = std::make_unique<ModelFile>(std::move(file));
  SINEW_ASSIGN(runner->spec_, read_spec(runner->file_->directory));
  SINEW_ASSIGN(runner->bound_, bind_tensors(runner->spec_, runner->file_->directory));
  SINEW_ASSIGN(runner->plan_, make_plan(runner->spec_, runner->bound_, options.layout));
  SINEW_TRY(check_cache_type(runner->spec_, options.cache_type));
  SINEW_ASSIGN(runner->device_, Device::open(options.device, options.threads));
  if (options.layout.whole_experts && !runner->device_->is_cpu())
    return fail(
        ErrorCode::kUnsupported,
        "device {}: whole experts send a token to one expert several times, which is proven "
        "on the CPU only; use --experts columns or --device CPU",
        runner->device_->name());

  SINEW_TRY(runner->load_slices(progress));
  const auto heads = static_cast<int>(runner->plan_.range(options.rank, Dimension::kHeads).size());
  const CacheShape cache{runner->plan_.stage(options.rank).layers, heads, options.context,
                         options.slots, options.cache_type};
  SINEW_ASSIGN(runner->cache_, KvCache::allocate(*runner->device_, runner->spec_, cache));
  runner->allocator_.reset(ggml_gallocr_new(runner->device_->default_buffers()));
  runner->model_.reset(new RankModel{runner->spec_, runner->plan_, options.rank, *runner->device_,
                                     runner->weights_, runner->cache_});
  return runner;
}

Status StepRunner::load_slices(const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  items_ = make_load_list(bound_, plan_, options_.rank);
  std::uint64_t total = 0;
  for (const LoadItem& item : items_) total += item.bytes.total();
  SINEW_ASSIGN(weights_, Weights::allocate(*device_, items_));
  hashed_blocks_ = choose_blocks(items_, options_.hashes);
  hashes_as_read_.resize(items_.size());
  const auto inspect = [&](const LoadItem& item, std::span<std::byte> slice) -> Status {
    SINEW_TRY(options_.faults.damage_read(item, slice));
    const auto index = static_cast<std::size_t>(&item - items_.data());
    if (!weights_.reads_back(weights_.find(item.name)))
      hashes_as_read_[index] = hash_packed(slice, hashed_blocks_[index]);
    return options_.faults.damage_hashed(item, slice);
  };
  return load_weights(
      *file_, items_, weights_, [&](std::uint64_t bytes) { progress(bytes, total); }, inspect);
}

void StepRunner::hash_slices(const std::function<void(SliceHash)>& send) const {
  std::vector<std::byte> block(kHashBlockBytes);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const ggml_tensor* tensor = weights_.find(items_[i].name);
    SliceHash hash{items_[i].name, hashes_as_read_[i]};
    if (weights_.reads_back(tensor)) {
      for (const std::uint32_t index : hashed_blocks_[i]) {
        const std::uint64_t begin = index * kHashBlockBytes;
        const auto bytes =
            std::span(block).first(std::min(kHashBlockBytes, ggml_nbytes(tensor) - begin));
        weights_.read(tensor, begin, bytes);
        hash.blocks.push_back(XXH3_64bits(bytes.data(), bytes.size()));
      }
    }
    send(std::move(hash));
  }
}

Result<StepGraph*> StepRunner::graph_for(const StepShape& shape) {
  const auto known = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const auto& graph) { return graph->shape() == shape; });
  if (known != graphs_.end()) {
    graphs_.splice(graphs_.begin(), graphs_, known);
    return graphs_.front().get();
  }
  SINEW_ASSIGN(std::unique_ptr<StepGraph> graph,
               StepGraph::build(*model_, shape, allocator_.get()));
  const std::uint64_t arena = ggml_gallocr_get_buffer_size(allocator_.get(), 0);
  if (arena != arena_bytes_)
    graphs_.clear();  // the arena has moved, and with it every older graph's tensors
  arena_bytes_ = arena;
  graphs_.push_front(std::move(graph));
  if (graphs_.size() > kGraphsMax) graphs_.pop_back();
  return graphs_.front().get();
}

void StepRunner::write_inputs(const StepGraph& graph, const Step& step) {
  const StepInputs& inputs = graph.inputs();
  const auto tokens = static_cast<std::size_t>(graph.shape().tokens);
  if (in_use(inputs.tokens)) {
    const IndexRange held = plan_.range(options_.rank, Dimension::kVocabulary);
    const auto rows = typed<std::int32_t>(scratch_, tokens);
    for (std::size_t i = 0; i < tokens; ++i) {
      const bool here = step.tokens[i] >= held.begin && step.tokens[i] < held.end;
      rows[i] = here ? static_cast<std::int32_t>(step.tokens[i] - held.begin) : 0;
    }
    write<std::int32_t>(inputs.tokens, rows);
    if (in_use(inputs.token_held)) {
      const auto factors = typed<float>(scratch_, tokens);
      for (std::size_t i = 0; i < tokens; ++i)
        factors[i] = step.tokens[i] >= held.begin && step.tokens[i] < held.end ? 1.0F : 0.0F;
      write<float>(inputs.token_held, factors);
    }
  }
  if (in_use(inputs.positions)) {
    const auto positions = typed<std::int32_t>(scratch_, tokens);
    for (std::size_t i = 0; i < tokens; ++i)
      positions[i] = static_cast<std::int32_t>(step.position + static_cast<std::int64_t>(i));
    write<std::int32_t>(inputs.positions, positions);
  }
  if (in_use(inputs.rope_divisors)) write<float>(inputs.rope_divisors, spec_.rope.divisors);
  if (in_use(inputs.window_rope_divisors))
    write<float>(inputs.window_rope_divisors, spec_.window.rope.divisors);
  if (in_use(inputs.cache_rows)) {
    const auto cells = typed<std::int64_t>(scratch_, tokens);
    const std::int64_t first = graph.shape().slot * options_.context + step.position;
    for (std::size_t i = 0; i < tokens; ++i) cells[i] = first + static_cast<std::int64_t>(i);
    write<std::int64_t>(inputs.cache_rows, cells);
  }
  if (in_use(inputs.mask)) write_mask(inputs.mask, step, options_.context);
  if (in_use(inputs.window_mask)) write_mask(inputs.window_mask, step, spec_.window.size);
  if (inputs.expert_held != nullptr) write_expert_places(inputs);
  write_trace_inputs(inputs);
  if (in_use(inputs.rows)) {
    const auto rows = static_cast<std::size_t>(graph.shape().rows);
    const auto wanted = typed<std::int32_t>(scratch_, rows);
    for (std::size_t i = 0; i < rows; ++i) wanted[i] = static_cast<std::int32_t>(tokens - rows + i);
    write<std::int32_t>(inputs.rows, wanted);
  }
}

void StepRunner::write_trace_inputs(const StepInputs& inputs) {
  constexpr std::uint64_t kSignSeed = 1;
  constexpr std::uint64_t kNoiseSeed = 2;
  if (in_use(inputs.sketch)) {
    const auto signs =
        typed<float>(scratch_, static_cast<std::size_t>(ggml_nelements(inputs.sketch)));
    for (std::size_t i = 0; i < signs.size(); ++i)
      signs[i] = (random_bits(kSignSeed, i) & 1U) != 0 ? 1.0F : -1.0F;
    write<float>(inputs.sketch, signs);
  }
  if (in_use(inputs.noise)) {
    const double size = kernel_noise(bound_);
    const auto factors =
        typed<float>(scratch_, static_cast<std::size_t>(ggml_nelements(inputs.noise)));
    // Uniform between the values that give variance 1.
    for (std::size_t i = 0; i < factors.size(); ++i)
      factors[i] = static_cast<float>(1.0 + size * std::sqrt(3.0) *
                                                (2.0 * random_unit(kNoiseSeed, i) - 1.0));
    write<float>(inputs.noise, factors);
  }
}

// A token sees itself and at most `window` - 1 tokens before it.
void StepRunner::write_mask(ggml_tensor* mask, const Step& step, std::int64_t window) {
  const auto width = static_cast<std::size_t>(mask->ne[0]);
  const auto tokens = static_cast<std::size_t>(mask->ne[1]);
  const auto values = typed<ggml_fp16_t>(scratch_, width * tokens);
  std::fill(values.begin(), values.end(), ggml_fp32_to_fp16(-INFINITY));
  for (std::size_t i = 0; i < tokens; ++i) {
    const std::int64_t end = step.position + static_cast<std::int64_t>(i) + 1;
    const std::int64_t begin = std::max<std::int64_t>(0, end - window);
    const auto seen = values.subspan(i * width + static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(end - begin));
    std::fill(seen.begin(), seen.end(), ggml_fp32_to_fp16(0.0F));
  }
  write<ggml_fp16_t>(mask, values);
}

void StepRunner::write_expert_places(const StepInputs& inputs) {
  const auto count = static_cast<std::size_t>(spec_.experts.count);
  const IndexRange range = plan_.range(options_.rank, Dimension::kExperts);
  const auto is_held = [&](std::size_t expert) {
    const auto index = static_cast<std::int64_t>(expert);
    return index >= range.begin && index < range.end;
  };
  if (in_use(inputs.expert_held)) {
    const auto held = typed<float>(scratch_, count);
    for (std::size_t e = 0; e < count; ++e) held[e] = is_held(e) ? 1.0F : 0.0F;
    write<float>(inputs.expert_held, held);
  }
  if (in_use(inputs.expert_place)) {
    const auto places = typed<std::int32_t>(scratch_, count);
    for (std::size_t e = 0; e < count; ++e)
      places[e] =
          is_held(e) ? static_cast<std::int32_t>(e) - static_cast<std::int32_t>(range.begin) : 0;
    write<std::int32_t>(inputs.expert_place, places);
  }
}

Status StepRunner::sum_over_ranks(const Segment& segment, Group& group, std::uint64_t step,
                                  std::size_t place) {
  const Stage& stage = plan_.stage(options_.rank);
  const RankSet ranks = RankSet::range(stage.first, stage.ranks);
  ggml_tensor* tensor = segment.partial_sum;
  const auto elements = static_cast<std::size_t>(ggml_nelements(tensor));
  if (ggml_backend_buffer_is_host(tensor->buffer)) {
    const std::span<float> values(static_cast<float*>(tensor->data), elements);
    if (segment.holds_nothing) std::fill(values.begin(), values.end(), 0.0F);
    options_.faults.damage_sum(step, place, values);
    return group.all_reduce_sum(values, ranks);
  }
  staging_.resize(elements);
  if (segment.holds_nothing)
    std::fill(staging_.begin(), staging_.end(), 0.0F);
  else
    ggml_backend_tensor_get(tensor, staging_.data(), 0, elements * sizeof(float));
  options_.faults.damage_sum(step, place, staging_);
  SINEW_TRY(group.all_reduce_sum(staging_, ranks));
  ggml_backend_tensor_set(tensor, staging_.data(), 0, elements * sizeof(float));
  return {};
}

Status StepRunner::receive_hidden(ggml_tensor* hidden, Group& group) {
  const std::size_t index = plan_.stage_index(options_.rank);
  const Rank sender = plan_.stages[index - 1].first;
  staging_.resize(ggml_nbytes(hidden) / sizeof(float));
  SINEW_TRY(group.broadcast(sender, std::as_writable_bytes(std::span(staging_)),
                            hand_over(plan_.stages[index], sender)));
  ggml_backend_tensor_set(hidden, staging_.data(), 0, ggml_nbytes(hidden));
  return {};
}

Status StepRunner::pass_hidden_on(ggml_tensor* hidden, Group& group) {
  const std::size_t index = plan_.stage_index(options_.rank);
  if (plan_.stages[index].first != options_.rank) return {};
  staging_.resize(ggml_nbytes(hidden) / sizeof(float));
  ggml_backend_tensor_get(hidden, staging_.data(), 0, ggml_nbytes(hidden));
  return group.broadcast(options_.rank, std::as_writable_bytes(std::span(staging_)),
                         hand_over(plan_.stages[index + 1], options_.rank));
}

Result<std::span<const float>> StepRunner::run(const Step& step, Group& group) {
  const auto tokens = static_cast<std::int64_t>(step.tokens.size());
  if (step.position + tokens > options_.context ||
      step.slot >= static_cast<std::uint32_t>(options_.slots))
    return fail(ErrorCode::kProtocol,
                "step {} ends at position {} of slot {}, outside {} slots of {} tokens",
                step.number, step.position + tokens, step.slot, options_.slots, options_.context);
  for (const TokenId token : step.tokens)
    if (token < 0 || token >= spec_.vocabulary)
      return fail(ErrorCode::kProtocol, "step {} holds token {}, outside the vocabulary of {}",
                  step.number, token, spec_.vocabulary);

  StepShape shape;
  shape.tokens = tokens;
  shape.cells = padded_cells(step.position + tokens, options_.context);
  shape.rows = step.rows == Step::Rows::kAll ? tokens : 1;
  shape.logits = step.rows != Step::Rows::kNone;
  shape.slot = static_cast<int>(step.slot);
  shape.trace = step.trace;
  SINEW_ASSIGN(StepGraph* const graph, graph_for(shape));
  group.set_step(step.number);
  if (graph->inputs().hidden != nullptr) SINEW_TRY(receive_hidden(graph->inputs().hidden, group));
  write_inputs(*graph, step);
  std::size_t place = 0;  // of the sums of this step
  for (const Segment& segment : graph->segments()) {
    const auto start = Clock::now();
    if (ggml_graph_n_nodes(segment.graph) > 0 &&
        ggml_backend_graph_compute(device_->backend(), segment.graph) != GGML_STATUS_SUCCESS)
      return fail(ErrorCode::kInternal, "device {} failed to compute step {}", device_->name(),
                  step.number);
    compute_time_ += Clock::now() - start;
    if (segment.partial_sum != nullptr)
      SINEW_TRY(sum_over_ranks(segment, group, step.number, place++));
  }
  if (plan_.stage(options_.rank).layers.end < spec_.layers)
    SINEW_TRY(pass_hidden_on(graph->hidden(), group));
  // Stages that need not answer go on with the next part of the prompt.
  if (plan_.stages.size() > 1 && !shape.logits) return std::span<const float>();
  return collect(*graph, group);
}

void StepRunner::read_trace(const Step& step, const std::function<void(TraceBlock)>& send) {
  // The graph of the step just run is the first of the list.
  if (step.trace == Trace::kOff || graphs_.empty()) return;
  const auto end = step.position + static_cast<std::int64_t>(step.tokens.size());
  for (const TracedSum& sum : graphs_.front()->traced()) {
    TraceBlock block{sum.place, end - sum.sketch->ne[1], {}};
    block.sketches.resize(static_cast<std::size_t>(ggml_nelements(sum.sketch)));
    ggml_backend_tensor_get(sum.sketch, block.sketches.data(), 0, ggml_nbytes(sum.sketch));
    send(std::move(block));
  }
}

// Each rank sends [hash of its stage's last hidden state | its logits] to rank 0, which compares
// and assembles.
Result<std::span<const float>> StepRunner::collect(const StepGraph& graph, Group& group) {
  const auto rows = static_cast<std::size_t>(graph.shape().logits ? graph.shape().rows : 0);
  const std::size_t hidden_bytes = ggml_nbytes(graph.hidden());
  staging_.resize(hidden_bytes / sizeof(float));
  ggml_backend_tensor_get(graph.hidden(), staging_.data(), 0, hidden_bytes);
  const StateHash own = XXH3_64bits(staging_.data(), hidden_bytes);
  const auto part_rows = [&](Rank rank) {
    const bool gives_logits = plan_.stage(rank).layers.end == spec_.layers;
    return gives_logits ? static_cast<std::size_t>(plan_.range(rank, Dimension::kVocabulary).size())
                        : 0;
  };

  outgoing_.resize(sizeof(StateHash) + rows * part_rows(options_.rank) * sizeof(float));
  std::memcpy(outgoing_.data(), &own, sizeof(own));
  if (graph.logits() != nullptr)
    ggml_backend_tensor_get(graph.logits(), outgoing_.data() + sizeof(own), 0,
                            outgoing_.size() - sizeof(own));

  std::array<std::size_t, kRankCountMax> counts{};
  std::size_t total = 0;
  for (Rank rank = 0; rank < plan_.ranks; ++rank)
    total += counts[static_cast<std::size_t>(rank)] =
        sizeof(StateHash) + rows * part_rows(rank) * sizeof(float);
  if (options_.rank == 0) gathered_.resize(total);
  SINEW_TRY(group.gather(
      0, outgoing_,
      std::span<const std::size_t>(counts).first(static_cast<std::size_t>(plan_.ranks)),
      options_.rank == 0 ? std::span<std::byte>(gathered_) : std::span<std::byte>()));
  if (options_.rank != 0) return std::span<const float>();

  const auto vocabulary = static_cast<std::size_t>(spec_.vocabulary);
  logits_.resize(rows * vocabulary);
  const std::byte* part = gathered_.data();
  StateHash first = own;
  for (Rank rank = 0; rank < plan_.ranks; ++rank) {
    StateHash hash = 0;
    std::memcpy(&hash, part, sizeof(hash));
    const Rank reference = plan_.stage(rank).first;
    if (rank == reference) first = hash;
    if (hash != first) {
      Error error{
          ErrorCode::kIntegrity,
          fmt::format("rank {} computed another hidden state than rank {} (hash {:016x}, not "
                      "{:016x}): its memory, its copy of the model or its program differs; compare "
                      "sha256sum of the model and 'sinew --version' on both",
                      rank, reference, hash, first),
          rank};
      return fail(std::move(error));
    }
    const IndexRange held = plan_.range(rank, Dimension::kVocabulary);
    const std::size_t width = part_rows(rank);
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(logits_.data() + row * vocabulary + static_cast<std::size_t>(held.begin),
                  part + sizeof(hash) + row * width * sizeof(float), width * sizeof(float));
    part += counts[static_cast<std::size_t>(rank)];
  }
  return std::span<const float>(logits_);
}

}  // namespace sinew
