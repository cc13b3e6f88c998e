// A new error code must be given its meaning everywhere.
#include "base/error.h"

namespace sinew {

bool is_users_fault(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kInvalidFile:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
    case ErrorCode::kInvalidRequest:
    case ErrorCode::kCancelled:
      return true;
    case ErrorCode::kIo:
    case ErrorCode::kNoMemory:
    case ErrorCode::kPeerLost:
    case ErrorCode::kDeadline:
    case ErrorCode::kProtocol:
    case ErrorCode::kIntegrity:
    case ErrorCode::kUnauthorised:
      return false;
#ifndef MUST_FAIL
    case ErrorCode::kInternal:
      return false;
#endif
  }
  return false;
}

}  // namespace sinew
