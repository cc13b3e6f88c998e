#include "engine/local_engine.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "host/model_file.h"

namespace sinew {
namespace {

// Memory of a rank besides weights and cache: program, graphs and activations; measured 60 to 250
// MiB.
constexpr std::uint64_t kRankOverheadBytes = 128u << 20;

// How often a caller is asked whether it still wants the answer.
constexpr std::chrono::milliseconds kWantedInterval{100};

// A request in which ranks are lost so often without a token between is itself what breaks them.
constexpr int kFruitlessMax = 3;

// The first `ranks` share this machine's memory.
Status check_memory(const ModelSpec& spec, const std::vector<BoundTensor>& bound, const Plan& plan,
                    int ranks, std::int64_t cells, TensorType cache_type) {
  std::uint64_t weights = 0;
  std::uint64_t caches = 0;
  for (Rank rank = 0; rank < ranks; ++rank) {
    const RankMemory memory = rank_memory(spec, bound, plan, rank, cells, cache_type);
    weights += memory.weight_bytes;
    caches += memory.cache_bytes;
  }
  const std::uint64_t overhead = kRankOverheadBytes * static_cast<std::uint64_t>(ranks);
  const std::uint64_t available = available_memory();
  const std::uint64_t needed = weights + caches + overhead;
  if (available == 0 || needed <= available) return {};
  return fail(
      ErrorCode::kNoMemory,
      "not enough memory: {} of weights + {} of KV cache for {} tokens + {} for {} ranks = {}, and "
      "{} are available; {}",
      format_bytes(weights), format_bytes(caches), cells, format_bytes(overhead), ranks,
      format_bytes(needed), format_bytes(available),
      weights + overhead < available ? "lower --ctx" : "use a smaller model or quantisation");
}

}  // namespace

Result<std::unique_ptr<LocalEngine>> LocalEngine::load(
    LaunchOptions options, const std::function<void(const std::vector<RankStatus>&)>& progress) {
  std::unique_ptr<LocalEngine> engine(new LocalEngine);
  {
    SINEW_ASSIGN(const ModelFile file, ModelFile::open(options.model_path));
    SINEW_ASSIGN(engine->spec_, read_spec(file.directory));
    SINEW_ASSIGN(const std::vector<BoundTensor> bound, bind_tensors(engine->spec_, file.directory));
    SINEW_ASSIGN(engine->plan_, make_plan(engine->spec_, bound, options.layout));
    SINEW_TRY(check_cache_type(engine->spec_, options.cache_type));
    if (options.context == 0)
      options.context = std::min(engine->spec_.context_trained, kContextDefault);
    if (options.context > kContextMax)
      return fail(ErrorCode::kUsage, "--ctx {} is larger than {}", options.context, kContextMax);
    if (options.context > engine->spec_.context_trained)
      spdlog::warn(
          "--ctx {} is larger than the {} tokens that {} was trained for; text beyond may be "
          "nonsense",
          options.context, engine->spec_.context_trained, engine->spec_.name);
    const int ranks_here =
        options.launched ? options.launched->on_first_machine : engine->plan_.ranks;
    SINEW_TRY(check_memory(engine->spec_, bound, engine->plan_, ranks_here,
                           options.context * options.slots, options.cache_type));
  }
  engine->options_ = options;
  SINEW_ASSIGN(engine->supervisor_, Supervisor::launch(options, progress));
  return engine;
}

Status LocalEngine::check_prompt(const std::vector<TokenId>& tokens) const {
  if (tokens.empty()) return fail(ErrorCode::kInvalidRequest, "the prompt is empty");
  if (tokens.size() >= static_cast<std::size_t>(options_.context))
    return fail(ErrorCode::kInvalidRequest,
                "the prompt has {} tokens; the context of {} must hold it and at least one token "
                "of the answer (raise --ctx)",
                tokens.size(), options_.context);
  for (const TokenId token : tokens)
    if (token < 0 || token >= spec_.vocabulary)
      return fail(ErrorCode::kInvalidRequest, "token {} is outside the vocabulary of {}", token,
                  spec_.vocabulary);
  return {};
}

Result<GenerationResult> LocalEngine::generate_in_epoch(
    GenerationRequest& request, const std::function<bool(TokenId)>& on_token,
    const std::function<bool()>& wanted) {
  SINEW_TRY(supervisor_->begin(BeginMessage{BeginMessage::Kind::kGenerate, request, false}));
  bool cancelled = false;
  const auto cancel_unless = [&](bool go_on) {
    if (go_on || cancelled) return;
    cancelled = true;
    supervisor_->cancel();
  };
  while (true) {
    const auto event = supervisor_->next_event(kWantedInterval);
    if (!event && cancelled) return GenerationResult{FinishReason::kCancelled};
    if (!event) return fail(event.error());
    if (!*event) {
      cancel_unless(wanted());
    } else if (const auto* done = std::get_if<DoneMessage>(&**event)) {
      GenerationResult result = done->result;
      if (cancelled) result.reason = FinishReason::kCancelled;
      return result;
    } else if (const auto* token = std::get_if<TokenMessage>(&**event); token && !cancelled) {
      request.prompt.push_back(token->token);
      ++request.first_draw;
      --request.tokens_max;
      cancel_unless(on_token(token->token));
    }
  }
}

Result<GenerationResult> LocalEngine::generate(const GenerationRequest& request,
                                               const std::function<bool(TokenId)>& on_token,
                                               const std::function<bool()>& wanted) {
  SINEW_TRY(check_prompt(request.prompt));
  SINEW_TRY(check_sampling(request.sampling));
  GenerationRequest rest = request;
  bool again = false;
  int fruitless = 0;
  const auto result_so_far = [&](GenerationResult result) {
    result.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    result.answer_tokens = static_cast<std::int64_t>(rest.first_draw - request.first_draw);
    return result;
  };
  while (true) {
    SINEW_ASSIGN(const bool serving, supervisor_->await_epoch(kWantedInterval));
    if (!wanted()) return result_so_far({FinishReason::kCancelled});
    if (!serving) continue;
    // The last token may have come just before the loss.
    const bool full = rest.prompt.size() >= static_cast<std::size_t>(options_.context);
    if (again && (rest.tokens_max <= 0 || full)) return result_so_far({FinishReason::kLength});
    if (again)
      spdlog::warn("the answer goes on after {} tokens: {} are computed again",
                   rest.first_draw - request.first_draw, rest.prompt.size());
    const std::uint64_t before = rest.first_draw;
    if (options_.recover_exactly)
      rest.stepwise = static_cast<std::size_t>(before - request.first_draw);
    auto result = generate_in_epoch(rest, on_token, wanted);
    if (result) return result_so_far(*std::move(result));
    fruitless = rest.first_draw == before ? fruitless + 1 : 0;
    if (!supervisor_->health() || fruitless == kFruitlessMax) return result;
    again = true;
  }
}

Status LocalEngine::collect(BeginMessage begin,
                            const std::function<void(ControlMessage&)>& on_event,
                            const std::function<bool()>& wanted) {
  SINEW_TRY(supervisor_->begin(std::move(begin)));
  while (true) {
    SINEW_ASSIGN(std::optional<ControlMessage> event, supervisor_->next_event(kWantedInterval));
    if (!wanted()) {
      supervisor_->cancel();
      return fail(ErrorCode::kCancelled, "stopped by a signal");
    }
    if (!event) continue;
    if (std::holds_alternative<DoneMessage>(*event)) return {};
    on_event(*event);
  }
}

Result<std::vector<float>> LocalEngine::evaluate(const std::vector<TokenId>& tokens, bool all) {
  SINEW_TRY(check_prompt(tokens));
  BeginMessage begin{all ? BeginMessage::Kind::kEvaluateAll : BeginMessage::Kind::kEvaluateLast,
                     {}};
  begin.request.prompt = tokens;
  std::vector<float> logits;
  SINEW_TRY(collect(
      std::move(begin),
      [&](ControlMessage& event) {
        if (const auto* piece = std::get_if<LogitsMessage>(&event))
          logits.insert(logits.end(), piece->values.begin(), piece->values.end());
      },
      [] { return true; }));
  return logits;
}

Result<std::vector<float>> LocalEngine::trace(
    const std::vector<TokenId>& tokens, Trace trace, bool fresh,
    const std::function<void(const TraceMessage&)>& on_trace, const std::function<bool()>& wanted) {
  SINEW_TRY(check_prompt(tokens));
  BeginMessage begin{
      trace == Trace::kNoisy ? BeginMessage::Kind::kTraceNoisy : BeginMessage::Kind::kTrace, {}};
  begin.request.prompt = tokens;
  begin.fresh = fresh;
  std::vector<float> logits;
  SINEW_TRY(collect(
      std::move(begin),
      [&](ControlMessage& event) {
        if (const auto* piece = std::get_if<LogitsMessage>(&event))
          logits.insert(logits.end(), piece->values.begin(), piece->values.end());
        if (const auto* block = std::get_if<TraceMessage>(&event)) on_trace(*block);
      },
      wanted));
  return logits;
}

Result<std::vector<std::vector<SliceHash>>> LocalEngine::slice_hashes(
    const std::function<bool()>& wanted) {
  std::vector<std::vector<SliceHash>> all(static_cast<std::size_t>(plan_.ranks));
  SINEW_TRY(collect(
      BeginMessage{BeginMessage::Kind::kHashes, {}, false},
      [&](ControlMessage& event) {
        auto* slice = std::get_if<SliceHashMessage>(&event);
        if (slice != nullptr && slice->rank >= 0 && slice->rank < plan_.ranks)
          all[static_cast<std::size_t>(slice->rank)].push_back(std::move(slice->hash));
      },
      wanted));
  return all;
}

}  // namespace sinew
