#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "api/api_error.h"

namespace sinew {

// Bounds of a request body, checked before a single value is allocated: the memory and the stack
// that a body costs are then in proportion to its text, whatever it says.
inline constexpr int kJsonDepthMax = 64;
inline constexpr int kJsonValuesMax = 1 << 18;

// HTTP 413 beyond kTextBytesMax, 400 for what is not JSON or breaks the bounds.
ApiResult<nlohmann::json> parse_json_body(std::string_view body);

}  // namespace sinew
