#include "server/chat_answer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "host/local_time.h"
#include "text/answer_stream.h"
#include "text/prompt.h"

namespace sinew {
namespace {

// The text of one answer on its way to the client: events of a stream, or one text that is kept.
class Delivery {
 public:
  Delivery(const ChatAnswerer::Job& job, AnswerSink& sink)
      : job_(job), sink_(sink), stream_(job.request.stream) {}

  void add(const std::string& text) {
    if (!stream_) {
      text_ += text;
      return;
    }
    begin();
    if (!text.empty()) sink_.event(delta_chunk(job_.identity, text));
  }

  void finish(AnswerEnd end, const Usage& usage) {
    if (!stream_) {
      sink_.reply({.body = chat_completion(job_.identity, text_, end, usage)});
      return;
    }
    begin();
    sink_.event(end_chunk(job_.identity, end));
    if (job_.request.include_usage) sink_.event(usage_chunk(job_.identity, usage));
    sink_.finish_stream();
  }

 private:
  // The first token begins the stream, so that an error of the prefill can still be an HTTP status.
  void begin() {
    if (!std::exchange(begun_, true)) sink_.event(role_chunk(job_.identity));
  }

  const ChatAnswerer::Job& job_;
  AnswerSink& sink_;
  const bool stream_;
  bool begun_ = false;
  std::string text_;
};

void log_answer(const ChatAnswerer::Job& job, const GenerationResult& result) {
  spdlog::info("{}: {} prompt tokens ({} cached) in {:.2f} s, {} answer tokens in {:.2f} s",
               job.identity.id, result.prompt_tokens, result.cached_tokens, result.prefill_seconds,
               result.answer_tokens, result.decode_seconds);
}

}  // namespace

ChatAnswerer::ChatAnswerer(const ServedModel& model, const std::atomic<bool>& stopping)
    : model_(model), stopping_(stopping), end_tokens_(end_of_generation_tokens(model.tokenizer)) {}

ApiResult<std::vector<TokenId>> ChatAnswerer::prompt_of(const ChatRequest& request) const {
  ChatSettings settings;
  settings.now = local_time();
  const auto text = model_.chat_template.render(request.messages, nullptr, true, settings);
  if (!text) return tl::unexpected<ApiError>(to_api_error(text.error()));
  auto tokens = encode_chat(model_.tokenizer, *text);
  if (!tokens) return tl::unexpected<ApiError>(to_api_error(tokens.error()));
  const auto context = model_.engine.context();
  if (static_cast<std::int64_t>(tokens->size()) >= context)
    return refuse_field("messages",
                        fmt::format("the conversation has {} tokens, but the context is {} tokens "
                                    "with the answer: shorten it, or serve with a larger context",
                                    tokens->size(), context),
                        "context_length_exceeded");
  if (tokens->empty()) return refuse_field("messages", "the conversation has no text");
  return *std::move(tokens);
}

void ChatAnswerer::answer(const Job& job, AnswerSink& sink) const {
  auto prompt = prompt_of(job.request);
  if (!prompt) return sink.fail(prompt.error());

  const std::int64_t room = model_.engine.context() - static_cast<std::int64_t>(prompt->size());
  GenerationRequest generation;
  generation.prompt = *std::move(prompt);
  generation.sampling = job.sampling;
  generation.tokens_max = std::min(job.request.tokens_max.value_or(room), room);
  if (!job.request.ignore_eos) generation.end_tokens = end_tokens_;

  AnswerStream text(model_.tokenizer, job.request.stop);
  Delivery delivery(job, sink);
  bool stopped = false;  // by a stop string
  const auto wanted = [&] { return !stopping_.load() && sink.wanted(); };
  const auto result = model_.engine.generate(
      generation,
      [&](TokenId token) {
        if (!wanted()) return false;
        const AnswerStream::Piece piece = text.add(token);
        delivery.add(piece.text);
        stopped = piece.stopped;
        return !stopped;
      },
      wanted);
  if (!result) {
    spdlog::error("{}: {}", job.identity.id, result.error().message);
    return sink.fail(to_api_error(result.error()));
  }
  log_answer(job, *result);
  if (result->reason == FinishReason::kCancelled && !stopped) {
    if (!sink.wanted()) return;
    return sink.fail(to_api_error(
        Error{ErrorCode::kCancelled, "the answer was cancelled: the server is stopping", {}}));
  }
  if (!stopped) delivery.add(text.finish());
  const AnswerEnd end =
      !stopped && result->reason == FinishReason::kLength ? AnswerEnd::kLength : AnswerEnd::kStop;
  delivery.finish(end, {.prompt_tokens = result->prompt_tokens,
                        .cached_tokens = result->cached_tokens,
                        .completion_tokens = result->answer_tokens});
}

}  // namespace sinew
