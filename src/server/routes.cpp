#include "server/routes.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "sample/sampler.h"

namespace sinew {
namespace {

constexpr std::string_view kModels = "/v1/models";
constexpr std::string_view kChat = "/v1/chat/completions";
constexpr std::string_view kHealth = "/health";
constexpr const char* kAllMethods = "GET, HEAD, POST, OPTIONS";

HttpReply wrong_method(const char* allowed) {
  HttpReply reply =
      reply_of({.status = 405,
                .message = fmt::format("the method is not available here: use {}", allowed),
                .type = "invalid_request_error",
                .code = "method_not_allowed"});
  reply.headers.emplace_back("Allow", allowed);
  return reply;
}

ApiError not_found(std::string message, const char* code, std::optional<std::string> param = {}) {
  return {.status = 404,
          .message = std::move(message),
          .type = "invalid_request_error",
          .param = std::move(param),
          .code = code};
}

// "%2F" and the like. Nothing for a broken escape.
std::optional<std::string> unescape(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) return {};
    result += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    i += 2;
  }
  return result;
}

// The request's own values over the defaults.
ApiResult<SamplingParams> sampling_of(const ChatRequest& request, SamplingParams params) {
  const auto set = [](float& target, const std::optional<double>& value) {
    if (value) target = static_cast<float>(*value);
  };
  set(params.temperature, request.temperature);
  set(params.top_p, request.top_p);
  set(params.min_p, request.min_p);
  set(params.repeat_penalty, request.repeat_penalty);
  set(params.presence_penalty, request.presence_penalty);
  set(params.frequency_penalty, request.frequency_penalty);
  if (request.top_k) {
    if (*request.top_k < 0 || *request.top_k > std::numeric_limits<int>::max())
      return refuse_field("top_k",
                          fmt::format("top_k must be 0 (off) or more, but is {}", *request.top_k));
    params.top_k = static_cast<int>(*request.top_k);
  }
  if (const Status checked = check_sampling(params); !checked) {
    // The message begins with the parameter's name.
    const std::string& message = checked.error().message;
    return refuse_field(message.substr(0, message.find(' ')), message);
  }
  return params;
}

}  // namespace

HttpReply reply_of(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = error_body(error)};
  if (error.retry_after_seconds > 0)
    reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_seconds));
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

Routes::Routes(const ServedModel& model, AccessRules rules, const SamplingParams& defaults,
               RouteSources sources)
    : model_(model), rules_(std::move(rules)), defaults_(defaults), sources_(std::move(sources)) {}

ModelCard Routes::card() const {
  return {.id = model_.id,
          .created = model_.created,
          .context = model_.engine.context(),
          .vocabulary_size = model_.engine.vocabulary_size()};
}

HttpReply Routes::model(std::string_view escaped_id) const {
  const auto id = unescape(escaped_id);
  if (id != model_.id)
    return reply_of(not_found(fmt::format("there is no model '{}' here, only '{}'",
                                          id.value_or(std::string(escaped_id)), model_.id),
                              "model_not_found", "model"));
  return {.body = model_object(card())};
}

HttpReply Routes::health() const {
  if (const Status healthy = model_.engine.health(); !healthy) {
    ApiError error = to_api_error(healthy.error());
    error.status = 503;
    error.type = "server_error";
    return reply_of(error);
  }
  nlohmann::ordered_json body;
  const auto dump = [&] {
    return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  if (const std::optional<Error> loss = model_.engine.recovering()) {
    body["status"] = "recovering";
    body["model"] = model_.id;
    body["cause"] = loss->message;
    return {.status = 503, .headers = {{"Retry-After", "1"}}, .body = dump()};
  }
  body["status"] = "ok";
  body["model"] = model_.id;
  body["requests_waiting"] = sources_.waiting();
  return {.body = dump()};
}

std::variant<HttpReply, ChatAnswerer::Job> Routes::chat(const HttpRequest& request) const {
  auto parsed = parse_chat_request(request.body);
  if (!parsed) return reply_of(parsed.error());
  if (parsed->model.value_or(model_.id) != model_.id)
    return reply_of(
        not_found(fmt::format("there is no model '{}' here, only '{}'", *parsed->model, model_.id),
                  "model_not_found", "model"));
  auto sampling = sampling_of(*parsed, defaults_);
  if (!sampling) return reply_of(sampling.error());
  sampling->seed = parsed->seed ? *parsed->seed : sources_.random();
  if (const Status healthy = model_.engine.health(); !healthy) return health();

  AnswerIdentity identity{
      .id = fmt::format("chatcmpl-{:016x}{:016x}", sources_.random(), sources_.random()),
      .model = model_.id,
      .created = sources_.now_seconds()};
  return ChatAnswerer::Job{
      .request = *std::move(parsed), .sampling = *sampling, .identity = std::move(identity)};
}

std::variant<HttpReply, ChatAnswerer::Job> Routes::handle(const HttpRequest& request) const {
  const std::string_view path =
      std::string_view(request.target).substr(0, request.target.find('?'));
  const bool get = request.method == "GET" || request.method == "HEAD";
  AccessRules rules = rules_;
  // A browser asks without the key whether it may ask, and a load balancer knows none.
  if (request.method == "OPTIONS" || path == kHealth) rules.api_key.clear();
  if (const auto refusal = refuse_access(rules, request)) return reply_of(*refusal);
  if (request.method == "OPTIONS")
    return HttpReply{.status = 204, .headers = {{"Allow", kAllMethods}}};

  if (path == kChat)
    return request.method == "POST" ? chat(request) : wrong_method("POST, OPTIONS");
  const bool one_model = path.starts_with(kModels) && path.substr(kModels.size()).starts_with('/');
  if (path != kHealth && path != kModels && !one_model)
    return reply_of(
        not_found(fmt::format("there is nothing at '{}'; the API is POST {}, GET {} and GET {}",
                              path, kChat, kModels, kHealth),
                  "unknown_url"));
  if (!get) return wrong_method("GET, HEAD, OPTIONS");
  if (path == kHealth) return health();
  if (path == kModels) return HttpReply{.body = model_list(card())};
  return model(path.substr(kModels.size() + 1));
}

std::vector<std::pair<std::string, std::string>> Routes::cors_headers(
    const HttpRequest& request) const {
  if (request.origin.empty() || !origin_allowed(rules_, request)) return {};
  std::vector<std::pair<std::string, std::string>> headers{
      {"Access-Control-Allow-Origin", request.origin}, {"Vary", "Origin"}};
  if (request.method == "OPTIONS") {
    headers.emplace_back("Access-Control-Allow-Methods", kAllMethods);
    headers.emplace_back("Access-Control-Allow-Headers", "*, Authorization, Content-Type");
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return headers;
}

}  // namespace sinew
