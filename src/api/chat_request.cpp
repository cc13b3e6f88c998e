#include "api/chat_request.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "api/json_body.h"
#include "api/messages.h"

namespace sinew {
namespace {

using nlohmann::json;

// Null counts as absent, as OpenAI's own clients send it.
const json* find(const json& object, const char* field) {
  const auto found = object.find(field);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

tl::unexpected<ApiError> wrong_type(const char* field, const char* wanted, const json& value) {
  return refuse_field(field,
                      fmt::format("'{}' must be {}, not {}", field, wanted, value.type_name()),
                      "invalid_type");
}

ApiResult<std::optional<double>> number(const json& body, const char* field) {
  const json* value = find(body, field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong_type(field, "a number", *value);
  return value->get<double>();
}

ApiResult<std::optional<std::int64_t>> integer(const json& body, const char* field) {
  const json* value = find(body, field);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) {
    const auto wide = value->get<std::uint64_t>();
    if (wide > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return refuse_field(field, fmt::format("'{}' is too large", field));
    return static_cast<std::int64_t>(wide);
  }
  if (value->is_number_integer()) return value->get<std::int64_t>();
  // Some clients have one type of number: 40.0 is an integer.
  if (value->is_number_float()) {
    const double real = value->get<double>();
    if (real == std::floor(real) && std::abs(real) < 0x1p53) return static_cast<std::int64_t>(real);
  }
  return wrong_type(field, "an integer", *value);
}

ApiResult<bool> boolean(const json& body, const char* field) {
  const json* value = find(body, field);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return wrong_type(field, "a boolean", *value);
  return value->get<bool>();
}

bool is_empty(const json& value) {
  return value.empty();
}
bool is_false(const json& value) {
  return value.is_boolean() && !value.get<bool>();
}
bool is_zero(const json& value) {
  return value.is_number() && value.get<double>() == 0.0;
}
bool is_one(const json& value) {
  return value.is_number() && value.get<double>() == 1.0;
}
bool is_none(const json& value) {
  return value == "none";
}
bool is_none_or_auto(const json& value) {
  return value == "none" || value == "auto";
}
bool is_text_format(const json& value) {
  return value.is_object() && value.value("type", json()) == "text";
}
bool is_text_only(const json& value) {
  return value == json::array({"text"});
}
bool never(const json&) {
  return false;
}

struct UnsupportedField {
  const char* field;
  bool (*is_neutral)(const json&);  // a value that asks for nothing
  const char* why;
};
constexpr std::array kUnsupportedFields{
    UnsupportedField{"n", is_one, "one answer a request; send the request again for another"},
    UnsupportedField{"logprobs", is_false, "log probabilities are not available"},
    UnsupportedField{"top_logprobs", is_zero, "log probabilities are not available"},
    UnsupportedField{"logit_bias", is_empty, "biases are not available"},
    UnsupportedField{"tools", is_empty, "tool calls are not available"},
    UnsupportedField{"tool_choice", is_none_or_auto, "tool calls are not available"},
    UnsupportedField{"functions", is_empty, "tool calls are not available"},
    UnsupportedField{"function_call", is_none_or_auto, "tool calls are not available"},
    UnsupportedField{"response_format", is_text_format, "only {\"type\": \"text\"} is available"},
    UnsupportedField{"modalities", is_text_only, "only [\"text\"] is available"},
    UnsupportedField{"audio", never, "only text is available"},
    UnsupportedField{"web_search_options", never, "web search is not available"},
    UnsupportedField{"reasoning_effort", is_none,
                     "the model's template alone decides on reasoning"},
    UnsupportedField{"chat_template_kwargs", is_empty, "the template takes no arguments"},
};

ApiResult<void> refuse_unsupported(const json& body) {
  for (const UnsupportedField& entry : kUnsupportedFields) {
    const json* value = find(body, entry.field);
    if (value != nullptr && !entry.is_neutral(*value))
      return refuse_field(entry.field,
                          fmt::format("'{}' is not supported here: {}", entry.field, entry.why),
                          "unsupported_parameter");
  }
  return {};
}

#define SINEW_API_ASSIGN(target, expression)                    \
  if (auto parsed = (expression)) {                             \
    target = *std::move(parsed);                                \
  } else {                                                      \
    return tl::unexpected<ApiError>(std::move(parsed).error()); \
  }

ApiResult<void> parse_sampling(const json& body, ChatRequest& request) {
  SINEW_API_ASSIGN(request.temperature, number(body, "temperature"));
  SINEW_API_ASSIGN(request.top_p, number(body, "top_p"));
  SINEW_API_ASSIGN(request.min_p, number(body, "min_p"));
  SINEW_API_ASSIGN(request.presence_penalty, number(body, "presence_penalty"));
  SINEW_API_ASSIGN(request.frequency_penalty, number(body, "frequency_penalty"));
  // Two names are in use for the same thing.
  const char* repeat = body.contains("repeat_penalty") ? "repeat_penalty" : "repetition_penalty";
  SINEW_API_ASSIGN(request.repeat_penalty, number(body, repeat));
  SINEW_API_ASSIGN(request.top_k, integer(body, "top_k"));
  // llama.cpp's and vLLM's clients write -1 for "off".
  if (request.top_k == -1) request.top_k = 0;
  std::optional<std::int64_t> seed;
  SINEW_API_ASSIGN(seed, integer(body, "seed"));
  if (seed && *seed != -1) request.seed = static_cast<std::uint64_t>(*seed);  // -1: any
  return {};
}

ApiResult<void> parse_tokens_max(const json& body, ChatRequest& request) {
  std::optional<std::int64_t> present_name;
  std::optional<std::int64_t> former_name;
  SINEW_API_ASSIGN(present_name, integer(body, "max_completion_tokens"));
  SINEW_API_ASSIGN(former_name, integer(body, "max_tokens"));
  if (present_name && former_name && *present_name != *former_name)
    return refuse_field("max_tokens", "'max_tokens' contradicts 'max_completion_tokens'");
  const char* field = present_name ? "max_completion_tokens" : "max_tokens";
  request.tokens_max = present_name ? present_name : former_name;
  if (request.tokens_max == -1)
    request.tokens_max.reset();  // local clients write it for "no limit"
  if (request.tokens_max && *request.tokens_max < 1)
    return refuse_field(
        field, fmt::format("'{}' must be 1 or more, but is {}", field, *request.tokens_max));
  return {};
}

ApiResult<void> parse_stop(const json& body, ChatRequest& request) {
  const json* value = find(body, "stop");
  if (value == nullptr) return {};
  const json list = value->is_string() ? json::array({*value}) : *value;
  if (!list.is_array()) return wrong_type("stop", "a string or an array of strings", *value);
  if (list.size() > kStopStringsMax)
    return refuse_field("stop", fmt::format("'stop' has {} strings, the limit is {}", list.size(),
                                            kStopStringsMax));
  for (const json& item : list) {
    if (!item.is_string()) return wrong_type("stop", "an array of strings", item);
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty() || text.size() > kStopStringBytesMax)
      return refuse_field("stop", fmt::format("a string of 'stop' must have from 1 to {} bytes",
                                              kStopStringBytesMax));
    request.stop.push_back(text);
  }
  return {};
}

ApiResult<void> parse_stream(const json& body, ChatRequest& request) {
  SINEW_API_ASSIGN(request.stream, boolean(body, "stream"));
  const json* options = find(body, "stream_options");
  if (options == nullptr) return {};
  if (!options->is_object()) return wrong_type("stream_options", "an object", *options);
  if (!request.stream)
    return refuse_field("stream_options", "'stream_options' needs 'stream': true");
  SINEW_API_ASSIGN(request.include_usage, boolean(*options, "include_usage"));
  return {};
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(std::string_view text) {
  json body;
  ChatRequest request;
  SINEW_API_ASSIGN(body, parse_json_body(text));
  if (const json* model = find(body, "model")) {
    if (!model->is_string()) return wrong_type("model", "a string", *model);
    request.model = model->get<std::string>();
  }
  using Part = ApiResult<void> (*)(const json&, ChatRequest&);
  for (const Part part :
       {Part(parse_sampling), Part(parse_tokens_max), Part(parse_stop), Part(parse_stream)}) {
    if (auto parsed = part(body, request); !parsed)
      return tl::unexpected<ApiError>(std::move(parsed).error());
  }
  SINEW_API_ASSIGN(request.ignore_eos, boolean(body, "ignore_eos"));
  if (auto supported = refuse_unsupported(body); !supported)
    return tl::unexpected<ApiError>(std::move(supported).error());
  const json* messages = find(body, "messages");
  if (messages == nullptr)
    return refuse_field("messages", "'messages' is missing", "missing_required_parameter");
  SINEW_API_ASSIGN(request.messages, check_messages(*messages));
  return request;
}

#undef SINEW_API_ASSIGN

}  // namespace sinew
