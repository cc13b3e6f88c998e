#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"

namespace sinew {

// A checked POST /v1/chat/completions: everything in it can be acted on.
//
// What OpenAI's interface has and this server cannot do is refused by name (HTTP 400), unless it
// has its neutral value. Fields that nobody knows, and those that only matter to OpenAI's own
// service (user, store, metadata, ..), are ignored as every compatible server does.
struct ChatRequest {
  std::optional<std::string> model;  // absent: the only one there is
  nlohmann::ordered_json
      messages;  // as ChatTemplate::render takes them: content is a string or null

  // Absent fields take the server's defaults. Ranges are those of check_sampling and are not
  // checked here.
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repeat_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<std::int64_t> top_k;
  std::optional<std::uint64_t> seed;

  std::optional<std::int64_t> tokens_max;  // absent: what the context allows
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;  // a last chunk with the token counts
};

inline constexpr std::size_t kMessagesMax = 4096;
inline constexpr std::size_t kStopStringsMax = 16;  // OpenAI allows 4, other local servers more
inline constexpr std::size_t kStopStringBytesMax = 512;

ApiResult<ChatRequest> parse_chat_request(std::string_view body);

}  // namespace sinew
