#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "base/error.h"

namespace sinew {

// What an API client is told when its request cannot be served: an HTTP status and OpenAI's error
// object, from which client libraries choose their exception class.
struct ApiError {
  int status = 500;
  std::string message;
  std::string type = "server_error";
  std::optional<std::string> param = {};  // the field of the request that is at fault
  std::optional<std::string> code = {};   // stable, for programs
  int retry_after_seconds = 0;            // 0: no such header
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

// HTTP 400 that names the field.
tl::unexpected<ApiError> refuse_field(std::string field, std::string message,
                                      std::string code = "invalid_value");

// The same for an error of the program below: its code becomes the `code`.
ApiError to_api_error(const Error& error);

// {"error": {"message": .., "type": .., "param": .., "code": ..}}; invalid UTF-8 is replaced.
std::string error_body(const ApiError& error);

}  // namespace sinew
