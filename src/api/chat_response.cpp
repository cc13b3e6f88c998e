#include "api/chat_response.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace sinew {
namespace {

using nlohmann::ordered_json;

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

const char* name_of(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStop:
      return "stop";
    case AnswerEnd::kLength:
      return "length";
  }
  return "stop";
}

ordered_json head(const AnswerIdentity& identity, const char* object) {
  ordered_json result;
  result["id"] = identity.id;
  result["object"] = object;
  result["created"] = identity.created;
  result["model"] = identity.model;
  result["choices"] = ordered_json::array();
  return result;
}

ordered_json to_json(const Usage& usage) {
  ordered_json result;
  result["prompt_tokens"] = usage.prompt_tokens;
  result["completion_tokens"] = usage.completion_tokens;
  result["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  result["prompt_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  return result;
}

// finish_reason stays null until the last chunk: some clients take any other value for the end.
std::string chunk(const AnswerIdentity& identity, ordered_json delta, ordered_json finish_reason) {
  ordered_json choice;
  choice["index"] = 0;
  choice["delta"] = std::move(delta);
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = std::move(finish_reason);
  ordered_json result = head(identity, "chat.completion.chunk");
  result["choices"].push_back(std::move(choice));
  return dump(result);
}

ordered_json to_json(const ModelCard& card) {
  ordered_json result;
  result["id"] = card.id;
  result["object"] = "model";
  result["created"] = card.created;
  result["owned_by"] = "sinew";
  result["meta"]["n_ctx"] = card.context;
  result["meta"]["n_vocab"] = card.vocabulary_size;
  return result;
}

}  // namespace

std::string chat_completion(const AnswerIdentity& identity, std::string_view text, AnswerEnd end,
                            const Usage& usage) {
  ordered_json choice;
  choice["index"] = 0;
  choice["message"]["role"] = "assistant";
  choice["message"]["content"] = text;
  choice["message"]["refusal"] = nullptr;
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = name_of(end);
  ordered_json result = head(identity, "chat.completion");
  result["choices"].push_back(std::move(choice));
  result["usage"] = to_json(usage);
  return dump(result);
}

std::string role_chunk(const AnswerIdentity& identity) {
  ordered_json delta;
  delta["role"] = "assistant";
  delta["content"] = "";
  return chunk(identity, std::move(delta), nullptr);
}

std::string delta_chunk(const AnswerIdentity& identity, std::string_view text) {
  ordered_json delta;
  delta["content"] = text;
  return chunk(identity, std::move(delta), nullptr);
}

std::string end_chunk(const AnswerIdentity& identity, AnswerEnd end) {
  return chunk(identity, ordered_json::object(), name_of(end));
}

std::string usage_chunk(const AnswerIdentity& identity, const Usage& usage) {
  ordered_json result = head(identity, "chat.completion.chunk");
  result["usage"] = to_json(usage);
  return dump(result);
}

std::string model_object(const ModelCard& card) {
  return dump(to_json(card));
}

std::string model_list(const ModelCard& card) {
  ordered_json result;
  result["object"] = "list";
  result["data"] = ordered_json::array({to_json(card)});
  return dump(result);
}

}  // namespace sinew
