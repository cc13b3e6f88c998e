#include "api/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "api/chat_request.h"

namespace sinew {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant",
                                                 "tool"};

// Fields of a message that templates read besides role and content. Reasoning has two names among
// clients.
constexpr std::array kTextFields{std::pair{"name", "name"},
                                 std::pair{"tool_call_id", "tool_call_id"},
                                 std::pair{"reasoning_content", "reasoning_content"},
                                 std::pair{"reasoning", "reasoning_content"}};

ApiResult<std::string> join_parts(const json& parts, const std::string& where) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const json& part = parts[i];
    const std::string place = fmt::format("{}[{}]", where, i);
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string())
      return refuse_field(place, fmt::format("'{}' must be an object with a 'type'", place));
    if (*type != "text")
      return refuse_field(place,
                          fmt::format("'{}' has the type '{}'; this model reads only 'text'", place,
                                      type->get_ref<const std::string&>()),
                          "unsupported_content_type");
    const auto value = part.find("text");
    if (value == part.end() || !value->is_string())
      return refuse_field(place, fmt::format("'{}.text' must be a string", place));
    text += value->get_ref<const std::string&>();
  }
  return text;
}

ApiResult<nlohmann::ordered_json> check_content(const json& message, bool may_be_null,
                                                const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (may_be_null) return nlohmann::ordered_json();
    return refuse_field(where, fmt::format("'{}' is missing", where), "missing_required_parameter");
  }
  if (content->is_string()) return nlohmann::ordered_json(content->get_ref<const std::string&>());
  if (!content->is_array())
    return refuse_field(where, fmt::format("'{}' must be a string or an array of parts", where),
                        "invalid_type");
  auto text = join_parts(*content, where);
  if (!text) return tl::unexpected<ApiError>(std::move(text).error());
  return nlohmann::ordered_json(*std::move(text));
}

ApiResult<nlohmann::ordered_json> check_message(const json& message, const std::string& where) {
  if (!message.is_object())
    return refuse_field(where, fmt::format("'{}' must be an object", where), "invalid_type");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string())
    return refuse_field(where + ".role", fmt::format("'{}.role' must be a string", where));
  const auto& role_name = role->get_ref<const std::string&>();
  if (std::find(kRoles.begin(), kRoles.end(), role_name) == kRoles.end())
    return refuse_field(
        where + ".role",
        fmt::format("'{}.role' must be one of system, developer, user, assistant, tool", where));
  nlohmann::ordered_json result;
  // Templates know no "developer": it is OpenAI's newer name of the same thing.
  result["role"] = role_name == "developer" ? "system" : role_name;

  const auto calls = message.find("tool_calls");
  const bool has_calls = calls != message.end() && !calls->is_null() && !calls->empty();
  if (has_calls && (role_name != "assistant" || !calls->is_array()))
    return refuse_field(
        where + ".tool_calls",
        fmt::format("'{}.tool_calls' must be an array in an assistant's message", where));
  auto content = check_content(message, has_calls, where + ".content");
  if (!content) return content;
  result["content"] = *std::move(content);
  if (has_calls) result["tool_calls"] = nlohmann::ordered_json(*calls);
  for (const auto& [name, name_for_template] : kTextFields) {
    const auto value = message.find(name);
    if (value == message.end() || value->is_null()) continue;
    if (!value->is_string())
      return refuse_field(fmt::format("{}.{}", where, name),
                          fmt::format("'{}.{}' must be a string", where, name), "invalid_type");
    result[name_for_template] = value->get_ref<const std::string&>();
  }
  return result;
}

}  // namespace

ApiResult<nlohmann::ordered_json> check_messages(const json& messages) {
  if (!messages.is_array())
    return refuse_field("messages", "'messages' must be an array", "invalid_type");
  if (messages.empty())
    return refuse_field("messages", "'messages' must have at least one message", "empty_array");
  if (messages.size() > kMessagesMax)
    return refuse_field("messages", fmt::format("'messages' has {} messages, the limit is {}",
                                                messages.size(), kMessagesMax));
  auto result = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto message = check_message(messages[i], fmt::format("messages[{}]", i));
    if (!message) return message;
    result.push_back(*std::move(message));
  }
  return result;
}

}  // namespace sinew
