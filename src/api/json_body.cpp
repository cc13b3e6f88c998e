#include "api/json_body.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/limits.h"

namespace sinew {
namespace {

tl::unexpected<ApiError> refuse_body(int status, std::string message, std::string code) {
  return tl::unexpected<ApiError>(ApiError{.status = status,
                                           .message = std::move(message),
                                           .type = "invalid_request_error",
                                           .code = std::move(code)});
}

struct Extent {
  int depth_max = 0;
  int values = 1;  // an upper bound: separators and brackets
};

// Counts brackets and separators outside strings; right for every valid text, harmless for others.
Extent measure(std::string_view text) {
  Extent extent;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') {
      ++depth;
      ++extent.values;
      if (depth > extent.depth_max) extent.depth_max = depth;
    }
    if (c == ']' || c == '}') --depth;
    if (c == ',') ++extent.values;
    if (extent.depth_max > kJsonDepthMax || extent.values > kJsonValuesMax) break;
  }
  return extent;
}

}  // namespace

ApiResult<nlohmann::json> parse_json_body(std::string_view body) {
  if (body.size() > kTextBytesMax)
    return refuse_body(413,
                       fmt::format("the request body has {}, the limit is {}",
                                   format_bytes(body.size()), format_bytes(kTextBytesMax)),
                       "body_too_large");
  const Extent extent = measure(body);
  if (extent.depth_max > kJsonDepthMax)
    return refuse_body(400, fmt::format("the JSON is nested deeper than {} levels", kJsonDepthMax),
                       "json_too_deep");
  if (extent.values > kJsonValuesMax)
    return refuse_body(400, fmt::format("the JSON has more than {} values", kJsonValuesMax),
                       "json_too_large");
  nlohmann::json parsed = nlohmann::json::parse(body.begin(), body.end(), nullptr, false);
  if (parsed.is_discarded())
    return refuse_body(400, "the request body is not valid JSON in UTF-8", "invalid_json");
  if (!parsed.is_object())
    return refuse_body(400, "the request body must be a JSON object", "invalid_json");
  return parsed;
}

}  // namespace sinew
