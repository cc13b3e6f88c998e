#include "base/error.h"

namespace sinew {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return 2;
    case ErrorCode::kNoMemory:
      return 4;
    case ErrorCode::kProtocol:
      return 5;
    case ErrorCode::kIntegrity:
      return 6;
    case ErrorCode::kUnauthorised:
      return 7;
    case ErrorCode::kInvalidFile:
      return 65;
    case ErrorCode::kNotFound:
      return 66;
    case ErrorCode::kUnsupported:
      return 69;
    case ErrorCode::kInternal:
      return 70;
    case ErrorCode::kIo:
      return 74;
    case ErrorCode::kDeadline:
      return 124;
    case ErrorCode::kCancelled:
      return 130;
    case ErrorCode::kInvalidRequest:
    case ErrorCode::kPeerLost:
      return 1;
  }
  return 1;
}

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kInvalidFile:
      return "invalid_file";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kNoMemory:
      return "no_memory";
    case ErrorCode::kInvalidRequest:
      return "invalid_request";
    case ErrorCode::kPeerLost:
      return "peer_lost";
    case ErrorCode::kDeadline:
      return "deadline";
    case ErrorCode::kProtocol:
      return "protocol";
    case ErrorCode::kIntegrity:
      return "integrity";
    case ErrorCode::kUnauthorised:
      return "unauthorised";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

Error Error::within(std::string_view context) const {
  return Error{code, std::string(context) + ": " + message, rank};
}

}  // namespace sinew
