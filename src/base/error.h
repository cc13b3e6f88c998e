#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sinew {

// What the caller should do about an error. Codes are few on purpose: the message carries the
// detail.
enum class ErrorCode : std::uint8_t {
  kUsage,           // a flag or argument is wrong: show the usage, exit 2
  kInvalidFile,     // a model file breaks a rule of its format or of its family: exit 65
  kUnsupported,     // valid, but this build cannot do it: exit 69
  kNotFound,        // a file, model or host does not exist: exit 66
  kIo,              // the system refused a read, write, bind, ...: exit 74
  kNoMemory,        // the plan needs more memory than there is: exit 4
  kInvalidRequest,  // an API request is wrong: HTTP 400
  kPeerLost,        // a rank died, stopped or broke its link: the epoch is over
  kDeadline,        // a wait passed its deadline: exit 124
  kProtocol,        // a message breaks the wire format, or belongs to another job or epoch: exit 5
  kIntegrity,       // a checksum or hash does not match: exit 6
  kUnauthorised,    // a peer lacks the cluster's secret, or has another: exit 7
  kCancelled,       // the user or the client went away
  kInternal,        // a bug of ours that was caught: exit 70
};

// Process exit status for an error that ends a command (facts in docs/user-guide.md).
int exit_status(ErrorCode code);

// Stable lower-case name for logs and API bodies, for example "peer_lost".
std::string_view error_code_name(ErrorCode code);

// An operating error: something that happens in a correct program. One line for an administrator
// that names the place and the remedy. Programmer errors are SINEW_ASSERTs instead.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::optional<int> rank;  // the rank that is at fault, where one is known

  // The same error with "context: " in front of its message.
  Error within(std::string_view context) const;
};

}  // namespace sinew
