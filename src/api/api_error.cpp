#include "api/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace sinew {
namespace {

constexpr int kRetryAfterLossSeconds = 5;

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kInvalidRequest:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnsupported:
      return 501;
    case ErrorCode::kPeerLost:
    case ErrorCode::kDeadline:
    case ErrorCode::kCancelled:
      return 503;
    case ErrorCode::kInvalidFile:
    case ErrorCode::kIo:
    case ErrorCode::kNoMemory:
    case ErrorCode::kProtocol:
    case ErrorCode::kIntegrity:
    case ErrorCode::kUnauthorised:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

}  // namespace

tl::unexpected<ApiError> refuse_field(std::string field, std::string message, std::string code) {
  return tl::unexpected<ApiError>(ApiError{.status = 400,
                                           .message = std::move(message),
                                           .type = "invalid_request_error",
                                           .param = std::move(field),
                                           .code = std::move(code)});
}

ApiError to_api_error(const Error& error) {
  ApiError result;
  result.status = status_of(error.code);
  result.message = error.message;
  result.code = std::string(error_code_name(error.code));
  if (result.status < 500) result.type = "invalid_request_error";
  if (result.status == 503) result.retry_after_seconds = kRetryAfterLossSeconds;
  return result;
}

std::string error_body(const ApiError& error) {
  nlohmann::ordered_json object;
  object["message"] = error.message;
  object["type"] = error.type;
  object["param"] = error.param ? nlohmann::ordered_json(*error.param) : nullptr;
  object["code"] = error.code ? nlohmann::ordered_json(*error.code) : nullptr;
  nlohmann::ordered_json envelope;
  envelope["error"] = std::move(object);
  return envelope.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace sinew
