#pragma once

#include <atomic>
#include <vector>

#include "api/chat_request.h"
#include "api/chat_response.h"
#include "server/answer_sink.h"
#include "server/served_model.h"

namespace sinew {

// Turns one checked chat request into an answer: template, tokens, engine, text, events.
//
// Threads: `answer` runs on the engine's thread alone.
class ChatAnswerer {
 public:
  // `stopping` outlives this object; once true, running answers end with an error that says so.
  ChatAnswerer(const ServedModel& model, const std::atomic<bool>& stopping);

  struct Job {
    ChatRequest request;
    SamplingParams sampling;
    AnswerIdentity identity;
  };
  void answer(const Job& job, AnswerSink& sink) const;

 private:
  ApiResult<std::vector<TokenId>> prompt_of(const ChatRequest& request) const;

  const ServedModel model_;
  const std::atomic<bool>& stopping_;
  std::vector<TokenId> end_tokens_;
};

}  // namespace sinew
