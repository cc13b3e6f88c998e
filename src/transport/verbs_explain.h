#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sinew {

// The calls to a verbs stack that can fail.
enum class VerbsCall : std::uint8_t {
  kListDevices,
  kOpenDevice,
  kQueryPort,
  kQueryGids,
  kAllocateDomain,
  kRegisterRegion,
  kCreateChannel,
  kCreateCq,
  kCreateQp,
  kQueryDepth,
  kToInit,
  kToReceive,
  kToSend,
  kPostReceive,
  kPostSend,
};

std::string_view verbs_call_name(VerbsCall call);

// One line for an administrator: what failed on which device, what the number means there, and what
// to do. Meanings as met on both stacks: docs/decisions/14-verbs-link.md. kIo where another attempt
// can end otherwise, kUnsupported where only a person can help.
Error explain_verbs(VerbsCall call, int error_number, std::string_view device);
// The same for the status of a work completion.
std::string explain_completion(std::uint32_t status);

}  // namespace sinew
