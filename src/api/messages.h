#pragma once

#include <nlohmann/json.hpp>

#include "api/api_error.h"

namespace sinew {

// The conversation of a chat request, checked and brought to one form: known fields only, content a
// string (text parts joined) or, for an assistant's tool calls, null.
ApiResult<nlohmann::ordered_json> check_messages(const nlohmann::json& messages);

}  // namespace sinew
