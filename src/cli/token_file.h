#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sinew {

// A file of int32 tokens, little-endian. kUsage if it is none or longer than any context.
Result<std::vector<TokenId>> read_tokens(const std::string& path);

}  // namespace sinew
