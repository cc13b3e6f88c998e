#include "engine/head.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/limits.h"

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;
using StepBlock = std::array<std::byte, kStepBlockBytes>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes of a step that travel in the first block, after the length.
constexpr std::size_t kInline = kStepBlockBytes - sizeof(std::uint32_t);
constexpr std::size_t kStepBytesMax = 64 + kChunkTokensMax * sizeof(TokenId);

}  // namespace

Status send_step(const Step& step, Group& group) {
  if (group.size() == 1) return {};
  std::vector<std::byte> bytes = encode_step(step);
  StepBlock block{};
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(block.data(), &size, sizeof(size));
  const std::size_t first = std::min<std::size_t>(size, kInline);
  std::memcpy(block.data() + sizeof(size), bytes.data(), first);
  SINEW_TRY(group.broadcast(0, block));
  if (first < size) return group.broadcast(0, std::span(bytes).subspan(first));
  return {};
}

Result<Step> receive_step(Group& group) {
  StepBlock block{};
  SINEW_TRY(group.broadcast(0, block));
  std::uint32_t size = 0;
  std::memcpy(&size, block.data(), sizeof(size));
  if (size > kStepBytesMax)
    return fail(ErrorCode::kProtocol, "rank 0 announces a step of {} bytes; {} is the limit", size,
                kStepBytesMax);
  std::vector<std::byte> bytes(size);
  const std::size_t first = std::min<std::size_t>(size, kInline);
  std::memcpy(bytes.data(), block.data() + sizeof(size), first);
  if (first < size) SINEW_TRY(group.broadcast(0, std::span(bytes).subspan(first)));
  return decode_step(bytes);
}

Step Head::next_step(std::span<const TokenId> tokens, Step::Rows rows) {
  Step step;
  step.number = ++steps_;
  step.rows = rows;
  step.position = static_cast<std::int64_t>(cached_.size());
  step.tokens.assign(tokens.begin(), tokens.end());
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  return step;
}

Result<std::span<const float>> Head::step(std::span<const TokenId> tokens, Step::Rows rows) {
  const Step step = next_step(tokens, rows);
  SINEW_TRY(send_step(step, group_));
  return runner_.run(step, group_);
}

std::size_t Head::keep_prefix(std::span<const TokenId> tokens) {
  std::size_t kept = 0;
  while (kept < cached_.size() && kept + 1 < tokens.size() && cached_[kept] == tokens[kept]) ++kept;
  cached_.resize(kept);
  return kept;
}

Status Head::end_request() {
  Step step;
  step.kind = Step::Kind::kEnd;
  step.number = ++steps_;
  return send_step(step, group_);
}

Result<GenerationResult> Head::generate(const GenerationRequest& request,
                                        const std::atomic<bool>& cancel,
                                        const std::function<void(TokenId)>& on_token) {
  auto result = run(request, cancel, on_token);
  if (result) SINEW_TRY(end_request());
  return result;
}

Result<GenerationResult> Head::run(const GenerationRequest& request,
                                   const std::atomic<bool>& cancel,
                                   const std::function<void(TokenId)>& on_token) {
  const auto start = Clock::now();
  GenerationResult result;
  result.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  const std::size_t kept = keep_prefix(request.prompt);
  result.cached_tokens = static_cast<std::int64_t>(kept);

  std::span<const float> logits;
  std::span<const TokenId> rest = std::span(request.prompt).subspan(kept);
  while (!rest.empty()) {
    if (cancel) {
      result.reason = FinishReason::kCancelled;
      return result;
    }
    const std::size_t at_once = rest.size() > request.stepwise ? rest.size() - request.stepwise : 1;
    const auto chunk = rest.first(std::min(at_once, static_cast<std::size_t>(chunk_tokens_)));
    rest = rest.subspan(chunk.size());
    SINEW_ASSIGN(logits, step(chunk, rest.empty() ? Step::Rows::kLast : Step::Rows::kNone));
  }
  result.prefill_seconds = seconds_since(start);

  const auto decode_start = Clock::now();
  const std::int64_t tokens_max =
      std::min(request.tokens_max, runner_.context() - result.prompt_tokens);
  std::vector<TokenId> history = request.prompt;
  Sampler sampler(request.sampling, runner_.spec().vocabulary);
  result.reason = FinishReason::kLength;
  while (result.answer_tokens < tokens_max) {
    const TokenId token = sampler.sample(
        logits, history, request.first_draw + static_cast<std::uint64_t>(result.answer_tokens));
    if (std::find(request.end_tokens.begin(), request.end_tokens.end(), token) !=
        request.end_tokens.end()) {
      result.reason = FinishReason::kStop;
      break;
    }
    on_token(token);
    history.push_back(token);
    if (++result.answer_tokens == tokens_max) break;
    if (cancel) {
      result.reason = FinishReason::kCancelled;
      break;
    }
    SINEW_ASSIGN(logits, step(std::span(&token, 1), Step::Rows::kLast));
  }
  result.decode_seconds = seconds_since(decode_start);
  return result;
}

Status Head::evaluate(std::span<const TokenId> tokens, bool all,
                      const std::function<void(std::span<const float>)>& on_rows) {
  if (all) cached_.clear();
  std::span<const TokenId> rest = tokens.subspan(keep_prefix(tokens));
  while (!rest.empty()) {
    const auto chunk = rest.first(std::min(rest.size(), static_cast<std::size_t>(chunk_tokens_)));
    rest = rest.subspan(chunk.size());
    const auto wanted = all            ? Step::Rows::kAll
                        : rest.empty() ? Step::Rows::kLast
                                       : Step::Rows::kNone;
    SINEW_ASSIGN(const std::span<const float> rows, step(chunk, wanted));
    if (!rows.empty()) on_rows(rows);
  }
  return end_request();
}

Status Head::trace(std::span<const TokenId> tokens, Trace trace, bool fresh,
                   const std::atomic<bool>& cancel,
                   const std::function<void(const Step&, std::span<const float>)>& on_step) {
  if (fresh) cached_.clear();
  std::span<const TokenId> rest = tokens.subspan(keep_prefix(tokens));
  while (!rest.empty() && !cancel) {
    const auto chunk = rest.first(std::min(rest.size(), static_cast<std::size_t>(chunk_tokens_)));
    rest = rest.subspan(chunk.size());
    Step traced = next_step(chunk, Step::Rows::kLast);
    traced.trace = trace;
    SINEW_TRY(send_step(traced, group_));
    SINEW_ASSIGN(const std::span<const float> logits, runner_.run(traced, group_));
    on_step(traced, logits);
  }
  return end_request();
}

}  // namespace sinew
