#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "engine/verify.h"

namespace sinew {

struct VerifyFlags {
  ModelFlags model;
  bool brief = false;       // --short: seconds instead of minutes
  std::string tokens_file;  // int32, little-endian; else a text of our own
  std::string record;
  std::string against;
  bool json = false;
  std::vector<std::string> inject;  // RANK:WHAT, for tests (engine/fault.h)
};

// `sinew verify`: prints the report; false if a check failed.
Result<bool> verify_command(const VerifyFlags& flags);

// What `flags` ask for: with neither ranks nor a layout given, 2, 3 and 4 ranks (2 in the short
// form) against one. The short form alone takes seconds and is meant for other commands as well.
Result<VerifyOptions> verify_options(const VerifyFlags& flags);

}  // namespace sinew
